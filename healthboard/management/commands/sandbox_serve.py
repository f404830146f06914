"""``manage.py sandbox_serve``: run the simulated AWS and GPU fleet in the foreground."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Serve the sandbox (a simulated AWS and GPU fleet) on 127.0.0.1 until it is stopped."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        from healthboard.sandbox.server import main

        status = main()
        if status:
            sys.exit(status)

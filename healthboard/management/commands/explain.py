"""``manage.py explain``, for `call_command` and ``help``; the work is `healthboard.diagnosis.explain_cli`."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from healthboard.diagnosis import explain_cli


class Command(BaseCommand):
    help = "Reads a kernel log, exporter text, tool output or AWS answer and prints findings and verdict as JSON."
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: Any) -> None:
        explain_cli.arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        code = explain_cli.run(
            options["file"], format_=options["format"], instance=options["instance"], jsonl=options["jsonl"]
        )
        if code:
            sys.exit(code)

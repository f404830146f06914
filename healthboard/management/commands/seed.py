"""``manage.py seed``: fill a database with a made-up fleet and its history, for looking and measuring."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

MOST = 100_000


class Command(BaseCommand):
    help = (
        "Fill the database with a plausible fleet and its history. Sandbox mode only. The machines are in accounts that "
        "no collector asks, so a running sandbox leaves them alone."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--instances", type=int, required=True, help="machines that are there now, 8 GPUs each")
        parser.add_argument("--days", type=int, default=30, help="days of history (default 30)")
        parser.add_argument("--seed", type=int, default=1, help="the same number gives the same fleet (default 1)")
        parser.add_argument("--add", action="store_true", help="add to a database that holds instances already")

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.SANDBOX:
            raise CommandError("seed exists in sandbox mode only", returncode=2)
        if not 1 <= options["instances"] <= MOST:
            raise CommandError(f"--instances must be from 1 to {MOST}", returncode=2)
        if not 0 <= options["days"] <= 365 or not 0 <= options["seed"] < 1_000_000:
            raise CommandError("--days must be from 0 to 365, --seed from 0 to 999999", returncode=2)
        from healthboard.seed.fill import Refused, fill

        call_command("setup")
        started = time.monotonic()
        try:
            made = fill(options["instances"], days=options["days"], seed=options["seed"], add=options["add"])
        except Refused as refusal:
            raise CommandError(str(refusal), returncode=2) from None
        self.stdout.write(
            f"{made.instances} instances, {made.gpus} GPUs, {made.cases} cases, {made.repairs} repairs and {made.audit} "
            f"audit rows in {time.monotonic() - started:.1f} s"
        )

"""``manage.py replay [--since 7d] [--policy FILE]``: decide recorded evidence again; exit 1 if anything differs."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard import clock
from healthboard.cases import replay
from healthboard.people.console import not_ready
from healthboard.policies import exchange
from healthboard.policies.form_fields import parse_duration
from healthboard.refusals import Refusal


class Command(BaseCommand):
    help = (
        "Decide the recorded evidence of cases again and print what comes out otherwise; exit 1 if anything does. "
        "Nothing is changed."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--since", default="7d", help="how far back, such as 12h or 7d (default: 7d)")
        parser.add_argument("--policy", metavar="FILE", help="policies as YAML, in place of those of the same name")

    def handle(self, *args: Any, **options: Any) -> None:
        seen = differing = 0
        try:
            instead = _policies(options["policy"]) if options["policy"] is not None else None
            for found in replay.since(_start(options["since"]), instead):
                seen += 1
                if found is not None:
                    differing += 1
                    self.stdout.write("\n".join(found.lines()))
            left = replay.purged(_start(options["since"]))
        except Refusal as refusal:
            raise CommandError(refusal.message, returncode=2) from None
        except DatabaseError as error:
            raise not_ready(error) from None
        if left:
            self.stdout.write(
                f"{left} pieces of evidence cannot be decided again: their inputs were purged for their age"
            )
        if differing:
            self.stdout.write(f"{differing} of {seen} pieces of evidence are decided otherwise")
            sys.exit(1)
        self.stdout.write(f"{seen} pieces of evidence, each is decided as it was")


def _start(text: str) -> datetime:
    try:
        seconds = parse_duration(text)
        if seconds <= 0:
            raise ValueError(f"“{text}” is no time to go back by.")
        return clock.now() - timedelta(seconds=seconds)
    except OverflowError:
        raise CommandError(f"“{text}” lies before all time.", returncode=2) from None
    except ValueError as error:
        raise CommandError(f"--since: {error}", returncode=2) from None


def _policies(file: str) -> replay.Instead:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}", returncode=2) from None
    return replay.Instead(exchange.read(text))

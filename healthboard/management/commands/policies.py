"""``manage.py policies export``, ``policies schema`` and ``policies apply [--dry-run] [--as USER] FILE``.

Without --as: HEALTHBOARD_USER, and in the sandbox its admin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard import config
from healthboard.people.console import named, not_ready
from healthboard.policies import exchange, schema
from healthboard.refusals import Refusal


class Command(BaseCommand):
    help = "Carry policies as YAML: export prints them, apply saves what differs as new versions."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        actions.add_parser("export", help="print all policies as YAML")
        actions.add_parser("schema", help="print the JSON schema of such a file, for editors and for checks")
        apply = actions.add_parser("apply", help="save what differs; all or nothing")
        apply.add_argument("file", help="a YAML file, or - for standard input")
        apply.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
        apply.add_argument("--as", dest="user", default="", help="the user under whose name it is done")
        apply.add_argument("--reason", default="", help="kept with the versions (default: the file's name)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["action"] == "export":
                self.stdout.write(exchange.export(), ending="")
                return
            if options["action"] == "schema":
                self.stdout.write(schema.text(), ending="")
                return
            self._apply(**{k: options[k] for k in ("file", "dry_run", "user", "reason")})
        except Refusal as refusal:
            raise CommandError(refusal.message, returncode=2) from None
        except DatabaseError as error:
            raise not_ready(error) from None

    def _apply(self, file: str, dry_run: bool, user: str, reason: str) -> None:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file} cannot be read: {error}", returncode=2) from None
        reason = reason or f"applied from {'standard input' if file == '-' else Path(file).name}"
        said = exchange.apply(text, actor=named(user or _somebody()), reason=reason, dry_run=dry_run)
        for line in said:
            self.stdout.write(line)
        if not said:
            self.stdout.write("nothing differs")
        elif dry_run:
            self.stdout.write("dry run: nothing was changed")


def _somebody() -> str:
    user = config.read("HEALTHBOARD_USER") or ("admin" if settings.SANDBOX else "")
    if not user:
        raise CommandError("say under whose name: --as USER", returncode=2)
    return user

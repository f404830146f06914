"""`manage.py audit_purge --before DATE`: take the payloads out of old audit rows. The chain still verifies after it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard.audit.purge import purge
from healthboard.people.console import named, operating
from healthboard.refusals import Refusal


class Command(BaseCommand):
    help = "Set the payloads of audit rows before DATE to null (their hashes stay); needs the owner of the tables."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--before", required=True, help="ISO date or time; without a zone UTC")
        parser.add_argument("--as", dest="user", default="", help="the user under whose name it is done")

    def handle(self, *args: Any, before: str, user: str, **options: Any) -> None:
        try:
            at = datetime.fromisoformat(before)
        except ValueError:
            raise CommandError(f"--before {before} is no ISO date", returncode=2) from None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        try:
            count, _ = purge(at, named(user) if user else operating())
        except Refusal as refusal:
            raise CommandError(refusal.message, returncode=2) from None
        except DatabaseError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[0]
            raise CommandError(f"the payloads stay: {reason}", returncode=2) from None
        self.stdout.write(f"{count} payloads purged")

"""`manage.py purge [--dry-run] [--as USER]`: purge what is older than it is kept (HEALTHBOARD_KEEP_…_DAYS)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from healthboard import config
from healthboard.cases import retention
from healthboard.people.console import named, not_ready, operating


class Command(BaseCommand):
    help = "Purge what is older than it is kept. Nothing that an open case or repair may need; audit rows stay."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say how much would go, and change nothing")
        parser.add_argument("--as", dest="user", default="", help="the user under whose name it is done")

    def handle(self, *args: Any, dry_run: bool, user: str, **options: Any) -> None:
        try:
            actor = named(user) if user else operating()
            found = retention.purge(actor=actor, dry_run=dry_run, longest_s=float("inf"))
        except config.BadSetting as error:
            raise CommandError(str(error), returncode=2) from None
        except DatabaseError as error:
            raise not_ready(error) from None
        for one in found:
            if one.before is None:
                said = f"kept for ever ({one.kind.variable}=0)"
            else:
                said = f"{one.count} older than {one.before:%Y-%m-%d} {'would go' if dry_run else 'purged'}"
            self.stdout.write(f"{one.kind.name}: {said}{f'; {one.problem}' if one.problem else ''}")
        if any(one.problem for one in found):
            raise CommandError("not everything could be purged", returncode=1)

"""`manage.py prepare_database [ROLE]`, run as the owner of the tables: migrations, then the rights of the processes' role.

For `python -m healthboard.processes prepare` and `make run`. Two at once do it one after the other.
"""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from healthboard.management.alone import alone


class Command(BaseCommand):
    help = "Migrate the database, as its owner, and give the role of the processes its rights."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", nargs="?", default="", help="the role of DATABASE_URL, where it is not the owner")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        try:
            with alone(self.stdout.write):
                number = _missing()
                call_command("migrate", interactive=False, verbosity=0, stdout=self.stdout, stderr=self.stderr)
                self.stdout.write(f"{number} migrations applied" if number else "no migrations to apply")
                if role:
                    call_command("grants", role, stdout=self.stdout)
        except DatabaseError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[0]
            raise CommandError(f"the database could not be prepared: {reason}", returncode=2) from None


def _missing() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))

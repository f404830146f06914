"""`manage.py prepare_database [ROLE]`, run as the owner of the tables: migrations, then the rights of the processes' role.

For `python -m healthboard.processes prepare` and `make run`. Two at once do it one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

#: any number; the same in every release
KEY = 4_817_000_076
#: how long another one that prepares the same database is waited for
PATIENCE_S = 600.0


class Command(BaseCommand):
    help = "Migrate the database, as its owner, and give the role of the processes its rights."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", nargs="?", default="", help="the role of DATABASE_URL, where it is not the owner")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        try:
            with self._alone():
                number = _missing()
                call_command("migrate", interactive=False, verbosity=0, stdout=self.stdout, stderr=self.stderr)
                self.stdout.write(f"{number} migrations applied" if number else "no migrations to apply")
                if role:
                    call_command("grants", role, stdout=self.stdout)
        except DatabaseError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[0]
            raise CommandError(f"the database could not be prepared: {reason}", returncode=2) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """An advisory lock, in a session of its own: it ends with that session, whatever happens to the other."""
        if connection.vendor != "postgresql":
            yield
            return
        lock = connection.copy()
        try:
            end, told = time.monotonic() + PATIENCE_S, False
            with lock.cursor() as cursor:
                while not _had(cursor):
                    if time.monotonic() > end:
                        raise CommandError("another one prepares this database and does not end", returncode=2)
                    if not told:
                        self.stdout.write("another one prepares this database: waiting for it")
                        told = True
                    time.sleep(0.5)
            yield
        finally:
            lock.close()


def _had(cursor: Any) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [KEY])
    return bool(cursor.fetchone()[0])


def _missing() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))

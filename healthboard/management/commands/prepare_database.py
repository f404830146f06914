"""`manage.py prepare_database [ROLE]`, run as the owner of the tables: migrations, then the rights of the processes' role.

For `python -m healthboard.processes prepare` and `make run`. Two at once do it one after the other. A migration waits for
its lock a moment only and then anew, so that the release before, which goes on meanwhile, never queues up behind it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

#: any number; the same in every release
KEY = 4_817_000_076
LOCK_TIMEOUT_MS, TRIES, PAUSE_S = 3000, 40, 3.0
#: how long another one that prepares the same database is waited for
PATIENCE_S = 600.0
_LOCK_NOT_AVAILABLE = "55P03"


class Command(BaseCommand):
    help = "Migrate the database, as its owner, and give the role of the processes its rights."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", nargs="?", default="", help="the role of DATABASE_URL, where it is not the owner")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        try:
            with self._alone():
                number = _missing()
                self._migrate()
                self.stdout.write(f"{number} migrations applied" if number else "no migrations to apply")
                if role:
                    call_command("grants", role, stdout=self.stdout)
        except DatabaseError as error:
            reason = (str(error).strip().splitlines() or ["unknown"])[0]
            raise CommandError(f"the database could not be prepared: {reason}", returncode=2) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if connection.vendor != "postgresql":
            yield
            return
        end = time.monotonic() + PATIENCE_S
        told = False
        while not _asked("SELECT pg_try_advisory_lock(%s)"):
            if time.monotonic() > end:
                raise CommandError("another one prepares this database and does not end: look there", returncode=2)
            if not told:
                self.stdout.write("another one prepares this database: waiting for it")
                self.stdout.flush()
                told = True
            time.sleep(0.5)
        try:
            yield
        finally:
            connection.close()  # with the session the lock ends, whatever state it is in

    def _migrate(self) -> None:
        for left in range(TRIES - 1, -1, -1):
            try:
                if connection.vendor == "postgresql":
                    with connection.cursor() as cursor:
                        cursor.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
                call_command("migrate", interactive=False, verbosity=0)
                return
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != _LOCK_NOT_AVAILABLE or not left:
                    raise
                self.stdout.write("a migration waits for a lock: tried again")
                self.stdout.flush()
                time.sleep(PAUSE_S)


def _asked(statement: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(statement, [KEY])
        return bool(cursor.fetchone()[0])


def _missing() -> int:
    executor = MigrationExecutor(connection)
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))

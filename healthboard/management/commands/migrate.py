"""``manage.py migrate``, as Django's, beside processes that go on writing.

On PostgreSQL a change of a table waits for a lock at most `LOCK_S`: whoever comes meanwhile queues behind it, so a
transaction that takes its time elsewhere must not hold everybody up. Then it is tried again; each migration is one
transaction, and what is applied stays applied. See docs/decisions/0085-migrations-beside-the-release-before.md.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as Migrate
from django.db import OperationalError, connections

LOCK_S = 2
TRIES, PAUSE_S = 60, 1.0
#: PostgreSQL's code for a lock that was not had in time
NOT_AVAILABLE = "55P03"


class Command(Migrate):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if connection.vendor != "postgresql":
            super().handle(*args, **options)
            return
        for left in reversed(range(TRIES)):
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_S}s"])
                super().handle(*args, **options)
                return
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != NOT_AVAILABLE:
                    raise
                if not left:
                    raise CommandError(
                        f"a table stayed locked for {TRIES} tries of {LOCK_S} s: end the long transaction "
                        "(pg_stat_activity), and run migrate again"
                    ) from error
                self.stderr.write(f"a table is in use: once more in {PAUSE_S:g} s")
                connection.close()
                time.sleep(PAUSE_S)
            finally:
                _unlimited(connection)


def _unlimited(connection: Any) -> None:
    """The limit is the migration's alone: others may go on with this connection."""
    if connection.connection is not None and not connection.connection.closed:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")

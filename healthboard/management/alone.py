"""One at a time: who prepares the same database waits for whoever does it already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.db import connection

#: any number; the same in every release
KEY = 4_817_000_076
PATIENCE_S = 600.0


@contextmanager
def alone(say: Callable[[str], object]) -> Iterator[None]:
    """Holds PostgreSQL's advisory lock, in a session of its own: it ends with that session, whatever happens to the other.
    Raises CommandError where somebody else does not end."""
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
                    say("another one prepares this database: waiting for it")
                    told = True
                time.sleep(0.5)
        yield
    finally:
        lock.close()


def _had(cursor: Any) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [KEY])
    return bool(cursor.fetchone()[0])

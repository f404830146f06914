"""The one source of time. On PostgreSQL it follows the database's clock, so that workers with a wrong clock agree.

Tests and replays set a virtual clock with `virtual()`; nothing else in the project calls `datetime.now` or
`timezone.now` to decide something.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.conf import settings

_REFRESH_S = 30.0
_offset = 0.0
_measured: float | None = None
_virtual: datetime | None = None


def now() -> datetime:
    """Aware UTC now, of the database where it has a clock of its own."""
    if _virtual is not None:
        return _virtual
    return datetime.fromtimestamp(time.time() + _database_offset(), UTC)


def scaled(span: timedelta | float) -> timedelta:
    """A policy time or interval (timedelta or seconds), divided by the sandbox's speed."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    return timedelta(seconds=seconds / settings.SPEED)


@contextmanager
def virtual(at: datetime) -> Iterator[None]:
    """Freeze this process's clock at `at`; may be nested or moved by entering again."""
    global _virtual
    before, _virtual = _virtual, at
    try:
        yield
    finally:
        _virtual = before


def _database_offset() -> float:
    global _offset, _measured
    from django.db import connection

    if connection.vendor != "postgresql":
        return 0.0
    mark = time.monotonic()
    if _measured is None or mark - _measured > _REFRESH_S:
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            _offset = float(cursor.fetchone()[0]) - time.time()
        _measured = mark
    return _offset

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
#: (what the database said, by which monotonic time it was asked)
_measured: tuple[float, float] | None = None
_virtual: datetime | None = None


def now() -> datetime:
    """Aware UTC now, of the database where it has a clock of its own."""
    if _virtual is not None:
        return _virtual
    return datetime.fromtimestamp(_epoch(), UTC)


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


def _epoch() -> float:
    """Seconds of the database's clock; between two questions the monotonic clock goes on, whatever the host's does."""
    global _measured
    from django.db import connection

    if connection.vendor != "postgresql":
        return time.time()
    mark = time.monotonic()
    if _measured is None or mark - _measured[1] > _REFRESH_S:
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
            _measured = float(cursor.fetchone()[0]), mark
    said, asked = _measured
    return said + mark - asked

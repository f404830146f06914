"""Times out of PostgreSQL are read by a quicker way than Django's own, and come out the same."""

from __future__ import annotations

from datetime import UTC

import pytest
from django.db import connection

from healthboard import clock
from tests import factories as make

TEXTS = (
    "2026-12-02 01:40:43.446101+00", "2026-12-02 01:40:43.4+00", "2026-12-02 01:40:43+00", "0001-01-01 00:00:00+00",
    "9999-12-31 23:59:59.999999+00", "2026-12-02 07:10:43.5+05:30", "1890-01-01 00:00:00-00:25:21", "infinity",
    "-infinity", "0044-03-15 00:00:00+00 BC", "20260-01-01 00:00:00+00", "nonsense+00", "",
)  # fmt: skip


@pytest.fixture
def both(db):
    """(ours, Django's own) on this connection."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no such reading")
    from django.db.backends.postgresql.psycopg_any import BaseTzLoader
    from psycopg import adapters
    from psycopg.pq import Format

    connection.ensure_connection()
    oid = adapters.types["timestamptz"].oid
    ours = connection.connection.adapters.get_loader(oid, Format.TEXT)
    assert ours.__module__ == "healthboard.apps"
    stock = type("Stock", (BaseTzLoader,), {"timezone": UTC})
    return ours(oid, connection.connection), stock(oid, connection.connection)


def _read(loader, text: str):
    try:
        found = loader.load(text.encode())
    except Exception as error:
        return type(error), str(error)
    return found, found.tzinfo


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_is_read_as_django_reads_it(both, text):
    ours, stock = both
    assert _read(ours, text) == _read(stock, text)


def test_a_row_gives_the_time_that_was_written(both):
    at = clock.now()
    assert type(make.instance(first_seen_at=at)).objects.get().first_seen_at == at

"""Whether a kept connection to PostgreSQL still stands is seen without a question, and never wrongly."""

from __future__ import annotations

import time

import pytest
from django.db import connection
from django.db.backends.postgresql import base

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps no connection to a server"),
]


@pytest.fixture
def kept():
    other = connection.copy()
    other.ensure_connection()
    other.connection.autocommit = True
    yield other
    other.close()


def test_a_quiet_connection_is_not_asked(kept, monkeypatch):
    monkeypatch.setattr(base.DatabaseWrapper, "is_usable", lambda self: 1 / 0)
    assert kept.is_usable()
    assert type(kept).__module__ == "healthboard.postgres.base"


def test_one_that_the_server_ended_is_given_up(kept):
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s)", [kept.connection.info.backend_pid])
    end = time.monotonic() + 10
    while (usable := kept.is_usable()) and time.monotonic() < end:
        time.sleep(0.02)
    assert not usable
    kept.close()
    assert not kept.is_usable(), "without a connection there is none to use"


def test_one_on_which_the_server_said_something_is_asked_and_stays(kept, monkeypatch):
    asked, ask = [], base.DatabaseWrapper.is_usable
    monkeypatch.setattr(base.DatabaseWrapper, "is_usable", lambda self: asked.append(self) or ask(self))
    kept.connection.execute("listen here")
    assert kept.is_usable() and not asked
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("notify here")
    finally:
        other.close()
    end = time.monotonic() + 10
    while kept.is_usable() and not asked and time.monotonic() < end:
        time.sleep(0.02)
    assert asked and kept.is_usable() and kept.connection.execute("select 1").fetchone() == (1,)

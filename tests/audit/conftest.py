from __future__ import annotations

import pytest
from django.db import connection

from healthboard.audit import chain, guard
from healthboard.people.actors import system
from tests import factories


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The heads' files of this test alone, and no broker."""
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))
    return tmp_path


@pytest.fixture
def rows(db):
    """Twelve sealed rows."""
    made = [
        factories.audit(f"thing.{n}", f"what happened, {n}", by=system("test"), payload={"n": n, "share": 0.1 * n})
        for n in range(12)
    ]
    chain.seal()
    return made


@pytest.fixture
def forge():
    """SQL as somebody would run it who owns the tables and has taken the triggers away."""

    def run(sql: str, *values) -> None:
        guard.remove(connection)
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
        guard.install(connection)

    return run

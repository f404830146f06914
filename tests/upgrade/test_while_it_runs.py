"""The migrations run while the release before goes on writing: reports of nodes, tokens, decisions, new instances."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from django.db.migrations.loader import MigrationLoader

from healthboard.management.commands.migrate import LOCK_S
from tests.loop.conftest import new_database
from tests.upgrade import beside
from tests.upgrade.released import releases
from tests.upgrade.test_columns import RELEASED
from tests.upgrade.test_migrations import _since_the_release

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif("DATABASE_URL" not in os.environ, reason="PostgreSQL's locks")
#: what docs/decisions/0085 promises: no report waits longer while a migration waits for its lock
PAUSE_S = LOCK_S + 1.5
#: tables that are changed, but of which the release before writes no new rows while it runs as a service
ONLY_BY_PEOPLE = {"people_grant", "people_savedview"}


@pytest.fixture(scope="module")
def known():
    loader = MigrationLoader(None)
    return beside.columns(loader.project_state(list(RELEASED.items())))


@pytest.fixture
def database():
    url = new_database()
    releases()[-1].restore(url)
    return url


def _changed() -> set[str]:
    """Tables of the release before that a migration since then changes."""
    found = set()
    for app, _, operation, _, released in _since_the_release():
        model = str(getattr(operation, "model_name", "")).lower()
        if (app, model) in released:
            found.add(f"{app}_{model}")
    return found


def _migrate(url: str) -> subprocess.Popen:
    env = os.environ | {"DATABASE_URL": url}
    return subprocess.Popen(
        [sys.executable, "manage.py", "migrate", "--noinput", "-v0"],
        cwd=ROOT,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )


def _waiting(link: psycopg.Connection) -> bool:
    """A migration waits for a lock."""
    return (
        link.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'").fetchone()[0]
        > 0
    )


def _held(url: str, seconds: float, seen: list[float]) -> None:
    """Somebody's long transaction, which has read the instances, until a migration has waited for it that long."""
    with psycopg.connect(url) as link, psycopg.connect(url, autocommit=True) as looking:
        link.execute("SELECT count(*) FROM fleet_instance").fetchone()
        for _ in range(1200):
            if _waiting(looking):
                break
            time.sleep(0.05)
        else:
            return
        begun = time.monotonic()
        time.sleep(seconds)
        seen.append(time.monotonic() - begun)


def test_reports_go_on_while_it_is_migrated(database, known):
    enough, held = threading.Event(), []
    changed = sorted(_changed() - ONLY_BY_PEOPLE)
    assert set(changed) == {*beside.DIFFERS, "cases_evidence"} - {"fleet_healthevent"}, "write its rows here too"
    reports = [beside.Reports(database, known, enough, number) for number in range(2)]
    others = beside.Everything(database, known, enough)
    others.tables = tuple(changed)
    before = {table: beside.rows(database, table) for table in (*changed, "fleet_healthevent")}
    holder = threading.Thread(target=_held, args=(database, 2.5 * LOCK_S, held), daemon=True)
    for thread in (*reports, others, holder):
        thread.start()
    migrating = _migrate(database)
    _, said = migrating.communicate(timeout=180)
    time.sleep(0.5)  # and afterwards, until its processes are replaced
    enough.set()
    for thread in (*reports, others, holder):
        thread.join(30)
    assert migrating.returncode == 0, said
    assert held and "a table is in use: once more" in said
    assert [error for writer in (*reports, others) for error in writer.errors] == []
    longest = max(max(writer.took) for writer in reports)
    assert longest < PAUSE_S, f"a report waited {longest:.1f} s"
    written = {table: beside.rows(database, table) - count for table, count in before.items()}
    assert written.pop("fleet_healthevent") == sum(len(writer.took) for writer in reports) > 30, "none is lost"
    assert set(written.values()) == {len(others.took)}

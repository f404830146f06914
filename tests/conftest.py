"""Real parts: a PostgreSQL cluster of our own on a spare port, and an embedded Valkey; `HEALTHBOARD_TEST_DB=sqlite` for SQLite,
or the URL of a server that is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before Django reads its settings: nothing of the caller's environment may lead a test to a real account.
_HOME = Path(tempfile.mkdtemp(prefix="healthboard-tests-"))
#: in a process of a distributed run: a stopped cluster whose database `MIGRATED` the first process has prepared for all
_BASE = os.environ.pop("TESTS_BASE", "")
(_HOME / "static").mkdir()  # else each handler warns that it is not there
for name in [n for n in os.environ if n.startswith(("AWS_", "HEALTHBOARD_")) and n != "HEALTHBOARD_TEST_DB"]:
    del os.environ[name]
os.environ.update(
    HEALTHBOARD_MODE="sandbox", HEALTHBOARD_HOME=str(_HOME), HEALTHBOARD_LOG_LEVEL="WARNING", HEALTHBOARD_PROCESS="all"
)
os.environ.pop("DATABASE_URL", None)
os.environ.pop("REDIS_URL", None)

from tests.services import MIGRATED, Postgres, copy_cluster  # noqa: E402

_postgres: Postgres | None = None
_given = os.environ.get("HEALTHBOARD_TEST_DB", "")
if _given.startswith("postgres"):
    os.environ["DATABASE_URL"] = _given
elif _given != "sqlite":
    if _BASE:
        copy_cluster(Path(_BASE), _HOME / "postgres")
    _postgres = Postgres.start(_HOME / "postgres")
    os.environ["DATABASE_URL"] = _postgres.url
os.environ["REDIS_URL"] = "redis://127.0.0.1:1/0"  # refused at once: messages are only wake-ups
# Here and not in pyproject.toml: from there pytest-django reads the settings before this file has run.
os.environ["DJANGO_SETTINGS_MODULE"] = "healthboard.settings"

import django  # noqa: E402
import pytest  # noqa: E402
from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from hypothesis import settings as examples  # noqa: E402

from healthboard import loaded  # noqa: E402
from tests import flush, once  # noqa: E402

os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's sync API keeps an event loop in this thread

if _BASE and _postgres is not None:
    settings.DATABASES["default"].setdefault("TEST", {})["TEMPLATE"] = MIGRATED
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # a slow one would cost minutes
assert _HOME.resolve() == settings.HOME, "settings were read before the environment was made"
django.setup()  # conftest.py files further down import models
flush.allow(connection)
once.allow()
examples.register_profile("untimed", deadline=None)  # how long an example takes says how busy the machine is
examples.load_profile("untimed")
# Inherited by the workers of a distributed run, it would make pytest-django read the settings before this file there.
del os.environ["DJANGO_SETTINGS_MODULE"]


def pytest_configure(config):
    """Before a distributed run: one database is migrated, for all its processes to start from."""
    if _postgres is None or not getattr(config.option, "numprocesses", None) or "PYTEST_XDIST_WORKER" in os.environ:
        return
    _postgres.prepare(MIGRATED)
    _postgres.stop()
    os.environ["TESTS_BASE"] = str(_postgres.folder)


@pytest.fixture(scope="session")
def chromium() -> Iterator:
    """One headless Chromium for all tests of a process: Playwright's sync API cannot be started twice in one thread."""
    from playwright.sync_api import expect, sync_playwright

    from tests.browser.shots import FLAGS

    expect.set_options(timeout=10_000)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from tests.sharing import InstallationsApart

    return InstallationsApart(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """After each test, every case that it made is decided again from its recorded evidence, and must come out alike."""
    result = yield
    if item.get_closest_marker("django_db") or {"db", "transactional_db"} & set(getattr(item, "fixturenames", ())):
        from django.db import connection

        from tests import replayed

        if not connection.needs_rollback:
            assert replayed.differing() == []
    return result


def pytest_collection_finish(session):
    loaded.keep()


def pytest_unconfigure(config):
    if _postgres is not None:
        _postgres.stop()
    shutil.rmtree(_HOME, ignore_errors=True)

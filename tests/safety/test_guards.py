"""Each guard can be taken out and has a test that fails then. All of them run with `make safety`, the cheap ones here."""

from __future__ import annotations

import os

import pytest
from django.conf import settings

from tests.safety import removal
from tests.safety.guards import GUARDS, ROOT, Cut

#: what has to have a guard in the registry, whatever else has
LEAST = {
    "unique index", "fence", "lease", "budget lock", "drain check", "room check", "replacement check", "owner check",
    "breaker", "stop switch", "evidence hash", "intent row", "token",
}  # fmt: skip


def test_the_registry_holds_what_it_must():
    assert set(GUARDS) >= LEAST and all(guard.cuts or guard.sql for guard in GUARDS.values())
    assert not [name for name, guard in GUARDS.items() if guard.cheap and guard.sql], "they share a database"


@pytest.mark.parametrize("name", list(GUARDS))
def test_each_guard_stands_where_it_is_taken_out_and_its_test_is_there(name):
    for cut in GUARDS[name].cuts:
        source = (ROOT / cut.path).read_text()
        made = cut.made(source)
        assert made != source and compile(made, cut.path, "exec")
    path, _, test = GUARDS[name].test.partition("::")
    assert f"def {test.partition('[')[0]}(" in (ROOT / "tests" / path).read_text()


def test_a_guard_that_moved_is_not_taken_for_taken_out():
    with pytest.raises(LookupError, match="2 times"):
        Cut("a.py", "x", "y").made("x = x")
    with pytest.raises(LookupError, match="0 times"):
        Cut("a.py", "z", "y").made("x = x")


@pytest.mark.skipif(os.environ.get("HEALTHBOARD_TEST_DB") == "sqlite", reason="guards that PostgreSQL gives")
@pytest.mark.parametrize("name", [name for name, guard in GUARDS.items() if guard.cheap])
def test_without_it_its_test_fails(name, tmp_path):
    server = settings.DATABASES["default"]
    url = f"postgres://{server['USER']}@{server['HOST']}:{server['PORT']}/without"
    assert removal.broken(name, url, tmp_path, both=False) == []

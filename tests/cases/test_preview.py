"""What an unsaved policy would have done with recorded evidence: case by case, within bounds, and without a trace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.db import DatabaseError, transaction

from healthboard.cases import preview
from healthboard.cases.models import Case, Evidence
from healthboard.people import access
from healthboard.policies.models import Policy, PolicyVersion
from tests import factories
from tests.cases import scene

pytestmark = pytest.mark.django_db

EVERYWHERE = {"account": "", "region": "", "cluster": "", "pool": "", "workload": "", "tags": {}}


def default(**settings):
    name = "for this test"
    return {**EVERYWHERE, "name": name, "enabled": True, "is_default": True, "settings": settings}


def narrow(name="train only", *, pool="train", enabled=True, **settings):
    return {**default(**settings), "name": name, "is_default": False, "pool": pool, "enabled": enabled}


@pytest.fixture
def see(db):
    return access.seeing(factories.person("admin"))


def auto(code="XID_119"):
    return {"codes": {code: {"mode": "auto", "action": "REBOOT"}}}


def two_pools():
    train, solo = factories.pool("train", "GROUP"), scene.solo()
    return [scene.asked(home=train), scene.asked(home=train), scene.asked(home=solo)]


def test_each_case_is_shown_as_it_would_have_gone_beside_what_was_done(time, see, operator):
    scene.policy()
    first, second, other = two_pools()
    scene.decided(second, "dismiss", by=operator, reason="a driver bug")
    found = preview.of(see, default(**auto()))
    assert [line.case for line in found.lines] == [first, second, other]
    assert {(line.then.words, line.now.words) for line in found.lines} == {
        ("Drain and reboot: asks a person", "Drain and reboot: by itself")
    }
    assert [line.done for line in found.lines] == ["still open", "dismissed by olga; dismissed", "still open"]
    assert found.lines[0].why == ("now the policy says: XID_119 is set to auto by for this test",)
    # the second came after the first in its pool; the other pool's course is its own
    assert [line.counterfactual for line in found.lines] == [False, True, False]
    assert (found.cases, found.alike, found.counterfactual) == (3, 0, 1)
    assert found.sums == [("Drain and reboot: asks a person", "Drain and reboot: by itself", 3, 1)]


def test_what_comes_after_a_change_in_its_pool_is_counterfactual_even_where_it_is_decided_alike(time, see):
    scene.policy()
    scene.asked(home=factories.pool("train", "GROUP"))
    later = scene.asked("XID_120", home=factories.pool("train", "GROUP"))
    found = preview.of(see, default(**auto()))
    assert later not in [line.case for line in found.lines]
    assert (found.cases, found.alike, found.counterfactual) == (2, 1, 1)


def test_instances_without_a_pool_do_not_change_each_others_course(time, see):
    scene.policy()
    two_pools()
    Case.objects.update(pool=None)
    assert not any(line.counterfactual for line in preview.of(see, default(**auto())).lines)


def test_a_code_that_is_only_watched_would_be_no_case(time, see):
    scene.policy()
    scene.asked()
    (line,) = preview.of(see, default(codes={"XID_119": {"verdict": "WATCH"}})).lines
    assert line.now.words == "no case: watch"


def test_only_cases_that_it_matches_are_its_concern(time, see):
    scene.policy()
    two_pools()
    found = preview.of(see, narrow(**auto()))
    assert (found.cases, len(found.lines), found.total) == (2, 2, 3)
    assert preview.of(see, narrow(**auto(), enabled=False)).cases == 0


def test_a_policy_under_a_new_name_stands_in_the_place_of_the_old_one(time, see):
    saved = scene.policy()
    made = Policy.objects.create(name="old name", pool="train", settings={"mode_ambiguous": "observe"})
    made.current = PolicyVersion.objects.create(
        policy=made, number=1, data=narrow("old name", mode_ambiguous="observe"), saved_at=saved.saved_at
    )
    made.save()
    scene.acting()
    on = scene.machine(factories.pool("train", "GROUP"))
    scene.shows(on)
    assert scene.read(on).mode == "observe"
    assert preview.of(see, narrow("new name"), before={"old name"}).lines[0].now.mode == "ask"
    # as a second policy beside the old one the more careful of the two holds
    assert preview.of(see, narrow("new name", mode_ambiguous="ask")).lines == []


def test_settings_that_only_say_how_a_repair_runs_are_named_and_what_follows_is_marked(time, see):
    scene.policy()
    two_pools()
    found = preview.of(see, default(undo_s=600, notify=["sre"]))
    assert found.running == ["Undo time"] and found.lines == []
    assert (found.alike, found.counterfactual) == (3, 1)


def test_what_newer_rules_decide_otherwise_is_not_laid_at_the_policys_door(time, see):
    scene.policy()
    case = scene.asked()
    row = case.evidence.get()
    row.inputs["events"] = []
    Evidence.objects.filter(pk=row.pk).update(inputs=row.inputs)
    found = preview.of(see, default(undo_s=600))
    assert (found.by_rules, found.lines) == (1, [])
    Evidence.objects.filter(pk=row.pk).update(inputs={**row.inputs, "now": "never"})
    assert preview.of(see, default()).unreadable == 1
    row.delete()


def test_bounds_of_rows_and_of_time_are_told(time, see):
    scene.policy()
    cases = []
    for _ in range(3):
        cases.append(scene.asked())
        time.turn(3600)
    found = preview.of(see, default(**auto()), most=2)
    assert found.cut.startswith("The newest 2 of 3 pieces of evidence")
    assert [line.case for line in found.lines] == cases[1:]
    found = preview.of(see, default(**auto()), seconds=-1)
    assert "0 of 3 pieces of evidence" in found.cut and found.lines == []
    time.turn(86400)
    assert preview.of(see, default(**auto()), days=1).total == 0


def test_only_what_the_person_sees_is_tried(time):
    scene.policy()
    two_pools()
    mine = access.seeing(factories.person("admin", pool="solo"))
    found = preview.of(mine, default(**auto()))
    assert (found.total, [str(line.case.pool) for line in found.lines]) == (1, ["solo"])


def test_the_database_refuses_every_change_while_it_looks(db):
    with pytest.raises(DatabaseError, match=r"read-?only"), transaction.atomic(), preview.reading_only():
        factories.account("999988887777")
    factories.account("999988887777")  # and only then


ON_SQLITE = """
import sqlite3, sys
import django
django.setup()
from django.db import DatabaseError, connection, transaction
from healthboard.cases import preview

def other(number):
    with sqlite3.connect(sys.argv[1], timeout=0) as db:
        db.execute("INSERT INTO t VALUES (?)", [number])

def count():
    with connection.cursor() as cursor:
        return cursor.execute("SELECT COUNT(*) FROM t").fetchone()[0]

with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE t (n INTEGER)")
with preview.reading_only():
    before = count()
    other(1)
    print("as it was:", before, count())
try:
    with preview.reading_only(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (2)")
except DatabaseError as error:
    print(error)
with transaction.atomic():  # again as everywhere: the writer's lock is taken at once
    try:
        other(3)
    except sqlite3.OperationalError as error:
        print(error)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (4)")
print("then:", count())
"""


def test_others_can_write_while_it_looks_on_sqlite(tmp_path):
    path = tmp_path / "one.sqlite3"
    env = {**os.environ, "DATABASE_URL": f"sqlite:///{path}", "DJANGO_SETTINGS_MODULE": "healthboard.settings"}
    done = subprocess.run(
        [sys.executable, "-c", ON_SQLITE, str(path)], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["as it was: 0 0", "attempt to write a readonly database", "database is locked", "then: 2"],
    ), done.stderr

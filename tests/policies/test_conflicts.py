"""No contradictory policy can be saved: not in itself, not with what it inherits, and not for those that inherit from it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group

from healthboard import clock
from healthboard.policies import check, conflicts, versions
from healthboard.policies.models import Policy
from healthboard.refusals import Invalid
from healthboard.repairs.recipes import RECIPES
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def admin():
    versions.ensure_default()
    return factories.actor(factories.person("admin", name="ada"))


def problems(settings, **match):
    found = versions.problems(Policy(name="new", settings=settings, **(match or {"workload": "llm"})))
    return {name: " ".join(sentences) for name, sentences in found.items()}


def save(admin, name, settings, **match):
    policy = Policy(name=name, settings=settings, **match)
    versions.save(policy, actor=admin, reason="test")
    return policy


def days(first, last):
    now = clock.now()
    return f"{now + timedelta(days=first):%Y-%m-%d} to {now + timedelta(days=last):%Y-%m-%d} UTC"


@pytest.mark.parametrize(
    "settings, where, words",
    [
        ({"ladder": []}, "ladder", "With what it inherits: Repairing without a person needs at least one repair on the"),
        ({"tries_24h": 0}, "tries_24h", "at least one try in 24 hours"),
        ({"repairs_per_hour": 0}, "repairs_per_hour", "at least one repair per hour"),
        ({"mode_hardware": "observe", "codes": {"XID_79": {"mode": "auto"}}, "budget_absolute": 0}, "budget_absolute",
         "room for at least one instance"),
        ({"expiry_s": 300, "undo_s": 300}, "undo_s", "must be shorter than"),
        ({"undo_s": 3600, "expiry_s": 1800}, "undo_s", "must be shorter than"),
        ({"windows": ["Sun 02:10-02:20 UTC"], "blackouts": ["2026-01-01 to 2026-02-01 UTC"]}, None, ""),
        ({"approver_group": "nobody"}, "approver_group", "There is no group nobody"),
        ({"checkpoint": ["nothing"]}, "checkpoint", "There is no webhook called nothing"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused_at_its_setting(settings, where, words):
    found = problems(settings)
    assert list(found) == ([where] if where else []) and words in found.get(where, "")


def test_a_window_that_never_opens_is_refused(admin):
    found = problems({"windows": ["Sat 00:00-24:00 UTC"], "blackouts": [days(-1, 300), days(300, 500)]})
    assert "No repair could ever begin" in found["windows"]
    assert "windows" not in problems({"windows": ["Sat 00:00-24:00 UTC"], "blackouts": [days(-1, 300)]})


def test_more_people_than_the_group_has_can_never_agree(admin):
    group = Group.objects.create(name="sre")
    group.user_set.add(factories.person("operator", name="otto"))
    gone = factories.person("operator", name="gone")
    gone.is_active = False
    gone.save()
    group.user_set.add(gone)
    assert problems({"approver_group": "sre"}) == {}
    assert (
        "2 people must agree, and the group sre has 1 member"
        in problems({"approver_group": "sre", "approvals": 2})["approvals"]
    )
    save(admin, "two", {"approvals": 2}, pool="train")
    found = problems({"approver_group": "sre"}, workload="llm", pool="train")
    assert "With what it inherits: 2 people must agree" in found["approver_group"]


def test_a_repair_that_no_machine_of_it_can_have_is_refused():
    train, plain = factories.pool("train"), factories.pool("plain", "NONE")
    factories.instance(train, owner="GROUP")
    factories.instance(plain, owner="PLAIN")
    relocate = {"codes": {"XID_79": {"mode": "ask", "action": "RELOCATE"}}}
    assert "XID_79: RELOCATE is not possible: the owner" in problems(relocate, pool="train")["codes"]
    assert problems(relocate, pool="plain") == {} and problems(relocate, workload="llm") == {}
    assert problems(relocate, account="111122223333") == {}, "one of its machines can have it"
    assert "No rung of the ladder is possible" in problems({"ladder": ["REPLACE"]}, pool="plain")["ladder"]
    assert problems({"ladder": ["REBOOT", "REPLACE"]}, pool="plain") == {}
    assert problems({"codes": {"XID_79": {"mode": "ask", "action": "REPLACE"}}}, pool="nowhere") == {}


def test_what_is_impossible_is_what_has_no_recipe():
    for action in ("REBOOT", "REPLACE", "RELOCATE", "DRAIN", "DIAGNOSE"):
        none = {o for o in conflicts.TOUCHABLE if not RECIPES.get((action, o)) and (action, "*") not in RECIPES}
        assert none == set(conflicts.IMPOSSIBLE.get(action, ())), action


def test_a_change_that_makes_another_policy_contradictory_is_refused(admin):
    save(admin, "llm alone", {"mode_hardware": "auto"}, pool="train", workload="llm")
    found = problems({"tries_24h": 0, "mode_hardware": "ask"}, pool="train")
    assert "The policy llm alone inherits this: Repairing without a person needs" in found["tries_24h"]
    with pytest.raises(Invalid, match="llm alone inherits this"):
        save(admin, "new", {"tries_24h": 0, "mode_hardware": "ask"}, pool="train")
    assert problems({"tries_24h": 0, "mode_hardware": "ask"}, pool="other") == {}


def test_what_was_contradictory_before_does_not_stand_against_another_change(admin):
    child = save(admin, "llm alone", {"mode_hardware": "auto"}, pool="train", workload="llm")
    data = {**child.current.data, "settings": {"mode_hardware": "auto", "tries_24h": 0}}
    type(child.current).objects.filter(pk=child.current_id).update(data=data)
    assert problems({"undo_s": 60}, pool="train") == {}


def test_without_a_time_nothing_is_said_of_windows():
    assert check.problems({"windows": ["Sat 00:00-24:00 UTC"], "blackouts": [days(-1, 300), days(300, 500)]}) == {}

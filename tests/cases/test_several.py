"""Where several people must say the same: what counts together, and what becomes of what others wanted."""

from __future__ import annotations

from healthboard.cases import invariants
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene
from tests.cases.scene import decided


def test_each_of_several_who_override_to_the_same_counts(time, operator, approver):
    scene.policy(approvals=3)
    case = scene.asked()
    third = factories.actor(factories.person("approver"))
    for by in (operator, approver, third):
        decided(case, "override", by=by, action="REPLACE", reason=f"says {by.name}")
    assert Repair.objects.get().action == "REPLACE"
    assert list(case.decisions.values_list("kind", "outcome")) == [("override", "DONE")] * 3
    assert not list(invariants.check())


def test_what_others_wanted_instead_is_refused_by_what_is_carried_out(time, operator, approver):
    scene.policy(approvals=2)
    case = scene.asked()
    values = {"action": "REPLACE", "reason": "the whole machine"}
    decided(case, "override", by=operator, **values)
    other = factories.actor(factories.person("operator", "otto"))
    decided(case, by=other)
    decided(case, by=approver)
    assert Repair.objects.get().action == case.action == "REBOOT"
    told = case.decisions.order_by("pk").values_list("actor", "outcome", "outcome_why")
    assert list(told) == [
        ("olga", "REFUSED", "anna decided otherwise"), ("otto", "DONE", ""), ("anna", "DONE", ""),
    ]  # fmt: skip
    assert not list(invariants.check())


def test_an_override_with_an_exception_is_another_than_one_without(time, operator, approver):
    scene.policy(approvals=2)
    case = scene.asked()
    values = {"action": "REPLACE", "reason": "the whole machine"}
    decided(case, "override", by=operator, allow=("terminate_first",), **values)
    decided(case, "override", by=approver, **values)
    assert not Repair.objects.exists()
    assert case.decisions.get(actor="olga").outcome_why == "anna decided otherwise"


def test_what_was_approved_of_an_older_plan_is_told_so(time, operator, approver):
    scene.policy(approvals=2)
    case = scene.asked()
    decided(case, by=operator)
    time.turn(5)
    scene.shows(case.instance, "XID_74", 1)
    scene.read(case.instance)
    decided(case, by=factories.actor(factories.person("operator", "otto")))
    decided(case, by=approver)
    told = case.decisions.order_by("pk").values_list("actor", "outcome", "outcome_why")
    assert list(told) == [
        ("olga", "REFUSED", "the plan changed after it"), ("otto", "DONE", ""), ("anna", "DONE", ""),
    ]  # fmt: skip

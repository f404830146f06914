"""Cases that are open already and get worse at the same time have one cause, too."""

from __future__ import annotations

from typing import Any

import pytest

from healthboard.cases.models import Case
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene
from workers.decide import breadth


@pytest.fixture
def old(time) -> list[Case]:
    """Five of sixteen machines whose cases wait for a person, opened hours apart from now."""
    scene.acting()
    home = scene.solo()
    for _ in range(11):
        scene.machine(home)
    cases = [scene.asked(home=home) for _ in range(5)]
    time.turn(7200)
    scene.seeing()
    breadth.look()
    assert not Case.objects.filter(instance=None).exists(), "what opened hours ago is no storm of now"
    return cases


def escalate(case: Case, *, alone: bool = False) -> Case:
    """Its kernel and NVML say that a GPU is gone."""
    gpu = factories.gpus(case.instance, 1)[0].uuid
    scene.shows(case.instance, "XID_79", gpu=gpu)
    if not alone:
        scene.lost(case.instance, gpu)
        case.instance.heads.update(last_at=factories.ago(1))
    return scene.read(case.instance)


def states(cases: list[Case]) -> set[Any]:
    return {Case.objects.get(pk=case.pk).state for case in cases}


def test_open_cases_that_get_worse_at_once_are_held_as_one(old):
    assert {escalate(case).pk for case in old} == {case.pk for case in old}
    assert states(old) == {"DECIDED"}, "each by itself would be repaired"
    breadth.look()
    group = Case.objects.get(instance=None)
    assert (group.verdict, group.code) == ("CORRELATED", "XID_79")
    assert states(old) == {"HELD"} and set(Repair.objects.values_list("state", flat=True)) == {"CANCELLED"}


def test_they_count_together_with_what_opens_meanwhile(old):
    for case in old[:3]:
        escalate(case)
    breadth.look()
    assert not Case.objects.filter(instance=None).exists(), "three of sixteen are not enough"
    fresh = [scene.machine(old[0].pool) for _ in range(3)]
    for on in fresh:
        scene.shows(on, "XID_79")
        scene.read(on)
    breadth.look()
    group = Case.objects.get(instance=None)
    assert set(group.members.values_list("instance", flat=True)) == {
        *(case.instance_id for case in old[:3]), *(on.pk for on in fresh)
    }  # fmt: skip


def test_a_code_that_becomes_hardware_on_many_counts_as_of_then(old):
    """The same code as before: the driver's wish for a reset makes it a clear failure."""
    for case in old:
        finding = case.evidence.get().assessment["findings"][0]
        assert (finding["code"], finding["verdict"]) == ("XID_119", "AMBIGUOUS")
        scene.shows(case.instance, "XID_119")
        scene.shows(case.instance, "XID_154", 19, attrs={"to": 2})
        again = scene.read(case.instance)
        assert (again.pk, again.code, again.verdict) == (case.pk, "XID_119", "HARDWARE")
    breadth.look()
    assert Case.objects.get(instance=None).code == "XID_119"


def test_the_same_findings_under_another_policy_are_no_storm(old):
    scene.policy(approvals=2)
    for case in old:
        assert scene.read(case.instance).evidence.count() == 2
    breadth.look()
    assert not Case.objects.filter(instance=None).exists()


def test_stopped_members_of_a_warm_pool_do_not_make_a_storm_smaller(time):
    scene.acting()
    home = scene.solo()
    for _ in range(20):
        scene.machine(home, state="stopped", group_state="Warmed:Stopped")
    cases = [scene.asked(home=home) for _ in range(4)]
    breadth.look()
    assert Case.objects.get(instance=None).code == "XID_119" and states(cases) == {"HELD"}

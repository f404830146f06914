"""Whole repairs, from the fault to the closed case, as AWS and the database show them afterwards."""

from __future__ import annotations

import pytest

from healthboard.fleet.models import Gpu, NodeRequest, Pool
from healthboard.repairs import budget
from healthboard.repairs.models import Call, Occupancy
from tests.repairs.driver import person

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def solo(db, drives):
    """Three machines of a launch template."""
    return drives("solo=template:3")


@pytest.fixture
def train(db, drives):
    """A group of three."""
    return drives("train=group:3")


def as_before(drive, desired=3):
    group = drive.group()
    assert group.desired == desired
    assert sorted(m["state"] for m in group.members.values()) == ["InService"] * desired
    active = [c for c in drive.fleet.world.containers.values() if c.status == "ACTIVE"]
    assert len(active) == desired


def steps_of(repair):
    return [s.name for s in repair.steps.all() if s.state == "DONE"]


def test_a_template_instance_with_a_lost_gpu_is_replaced(solo):
    machine = solo.machine("solo")
    gpu = machine.gpus[2]["uuid"]
    solo.inject(machine, "XID_79", 2)
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome, repair.automatic) == ("SUCCEEDED", "REPLACED", True)
    assert steps_of(repair) == [
        "recheck", "room", "keep", "drain", "launch", "replacement", "tasks", "terminate", "deregister", "verify",
    ]  # fmt: skip
    assert solo.calls(machine) == {DRAIN: 1, "TerminateInstances": 1}
    assert solo.calls()["RunInstances"] == 1
    assert solo.case(machine).resolution == "REPAIRED"
    assert Gpu.objects.get(uuid=gpu).condemned_at is not None
    assert repair.replacement.launched_by_us
    assert len(solo.fleet.pool("solo")) == 3
    assert Occupancy.objects.get(repair=repair).released_at is not None
    solo.sound()


def test_the_replacement_serves_before_the_old_machine_is_ended(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 2)
    repair = solo.repaired(machine)
    ended = Call.objects.get(repair=repair, operation="TerminateInstances")
    assert repair.replacement.registered_at < ended.intended_at
    served = repair.steps.get(name="replacement")
    assert served.state == "DONE" and served.ended_at <= ended.intended_at


def test_a_group_member_with_a_lost_gpu_is_replaced_by_standby(train):
    machine = train.machine("train")
    train.inject(machine, "XID_79", 0)
    repair = train.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED")
    assert train.calls(machine) == {DRAIN: 1, "EnterStandby": 1, "DetachInstances": 1, "TerminateInstances": 1}
    assert "RunInstances" not in train.calls()
    launches = [a for a in train.fleet.world.activities.values() if a.what == "launch"]
    assert [a.instance for a in launches] == [repair.replacement.instance_id]
    as_before(train)
    train.sound()


def test_what_its_group_replaces_by_itself_is_drained_and_watched(train):
    machine = train.machine("train")
    train.inject(machine, "EC2_SYSTEM_IMPAIRED")
    repair = train.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED_BY_GROUP")
    assert set(train.calls(machine)) <= {DRAIN, "DeregisterContainerInstance"}
    assert train.case(machine).resolution == "REPLACED_BY_GROUP"
    train.sound()


def test_a_group_member_is_rebooted_aside_and_comes_back(train):
    machine = train.machine("train")
    boot, home, sizes = machine.boot_id, Pool.objects.get(name="train"), []
    train.hands.append(lambda: home.refresh_from_db() or sizes.append((home.desired, budget.usage(home, {}).size)))
    train.inject(machine, "XID_95", 1)
    train.until(lambda: train.calls(machine)["RebootInstances"], 120)
    assert train.group().desired == 2
    repair = train.repaired(machine)
    assert (2, 3) in sizes and all(3 >= size >= desired for desired, size in sizes), sizes
    assert not repair.facts["decremented"]
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REBOOTED")
    assert machine.boot_id != boot
    assert train.calls(machine) == {DRAIN: 2, "EnterStandby": 1, "RebootInstances": 1, "ExitStandby": 1}
    as_before(train)
    assert "RunInstances" not in train.calls() and len(train.fleet.pool("train")) == 3
    train.sound()


def test_a_slow_reboot_that_fails_its_checks_is_not_replaced_by_the_group(train):
    """Nor taken for one that did not help: while a machine comes up, EC2 may still call it impaired."""
    machine = train.machine("train")
    train.policy(reboot_timeout_s=7200)
    train.inject(machine, "REBOOT_SLOW")
    train.inject(machine, "XID_95", 1)
    train.until(lambda: train.repair(machine) and train.repair(machine).step == "soak", 400)
    train.inject(machine, "EC2_INSTANCE_IMPAIRED")
    train.until(lambda: "AMBIGUOUS" in train.repair(machine).why_waiting, 60)
    train.mend(machine, "EC2_INSTANCE_IMPAIRED")
    repair = train.repaired(machine, within=500)
    assert train.calls(machine)["RebootInstances"] == 1
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REBOOTED")
    as_before(train)


def test_a_template_instance_is_rebooted_in_place(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_62", 1)
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REBOOTED")
    assert solo.calls() == {DRAIN: 2, "RebootInstances": 1}
    assert solo.fleet.container(machine).status == "ACTIVE"
    assert NodeRequest.objects.get(instance=repair.instance).ok
    solo.sound()


def plain(drive, machine):
    """As if started by hand: no template tag."""
    with drive.fleet.engine.sandbox.lock:
        machine.tags = {k: v for k, v in machine.tags.items() if not k.startswith("aws:")}
    drive.until(lambda: drive.row(machine).owner == "PLAIN", 30)


def test_a_plain_instance_is_never_relaunched_but_relocated_by_a_person(solo):
    machine = solo.machine("solo")
    plain(solo, machine)
    serials = {g["uuid"] for g in machine.gpus}
    solo.inject(machine, "XID_79", 2)
    case = solo.opened(machine)
    solo.steps(10, 2)
    case.refresh_from_db()
    assert (case.state, solo.repair(machine)) == ("WAITING", None)
    solo.decide(case, "override", action="RELOCATE", reason="another host")
    repair = solo.repaired(machine, within=600)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "RELOCATED")
    assert solo.calls() == {DRAIN: 2, "StopInstances": 1, "StartInstances": 1}
    assert not serials & {g["uuid"] for g in machine.gpus}
    assert solo.case(machine).resolution == "REPAIRED"
    solo.sound()


def test_a_plain_instance_is_rebooted(solo):
    machine = solo.machine("solo")
    plain(solo, machine)
    solo.inject(machine, "XID_95", 1)
    repair = solo.repaired(machine, within=500)
    assert (repair.action, repair.state, repair.outcome) == ("REBOOT", "SUCCEEDED", "REBOOTED")
    assert solo.calls() == {DRAIN: 2, "RebootInstances": 1}


def test_a_person_drains_and_returns(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_119", 0)
    case = solo.opened(machine)
    solo.decide(case, "override", action="DRAIN", reason="first look")
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "DONE")
    assert solo.fleet.container(machine).status == "DRAINING" and solo.calls() == {DRAIN: 1}
    case = solo.case(machine)
    assert case.state == "WAITING"
    solo.decide(case, "override", action="RETURN", reason="fine")
    solo.until(lambda: solo.fleet.container(machine).status == "ACTIVE", 60)
    assert solo.repaired(machine).outcome == "DONE"
    solo.sound()


def test_a_diagnostic_asks_the_node_and_changes_nothing(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_119", 0)
    case = solo.opened(machine)
    solo.decide(case, "override", action="DIAGNOSE", reason="what does it say")
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "DONE")
    assert not solo.calls()
    assert NodeRequest.objects.get(instance=repair.instance).ok is False
    assert solo.case(machine).state == "WAITING"


def test_an_absent_answer_to_a_diagnostic_is_said_too(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_119", 0)
    case = solo.opened(machine)
    solo.inject(machine, "MONITORING_GAP")
    solo.decide(case, "override", action="DIAGNOSE", reason="what does it say")
    repair = solo.repaired(machine)
    assert "did not answer" in repair.outcome_why


def test_a_reboot_that_did_not_help_climbs_to_a_replacement_in_the_group(train):
    machine = train.machine("train")
    train.inject(machine, "XID_95", 1)
    train.at_step(machine, "boot")
    train.inject(machine, "ROW_REMAP_FAILURE", 1)  # shows again after the boot, and stays with the host
    repair = train.repaired(machine, within=900)
    assert (repair.action, repair.state, repair.outcome) == ("REPLACE", "SUCCEEDED", "REPLACED"), train.said()
    assert train.calls(machine)["RebootInstances"] == 1
    assert train.calls(machine)["EnterStandby"] == 1
    as_before(train)
    train.sound()


def test_a_reboot_that_did_not_help_climbs_to_a_replacement_by_template(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_95", 1)
    solo.at_step(machine, "boot")
    solo.inject(machine, "ROW_REMAP_FAILURE", 1)
    repair = solo.repaired(machine, within=900)
    assert (repair.action, repair.state, repair.outcome) == ("REPLACE", "SUCCEEDED", "REPLACED"), solo.said()
    assert solo.calls()["RunInstances"] == 1 and solo.calls(machine)["RebootInstances"] == 1
    solo.sound()


def test_a_persons_own_reboot_that_did_not_help_asks_that_person(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_119", 1)
    case = solo.opened(machine)
    solo.decide(case, "override", action="REBOOT", reason="try")
    solo.at_step(machine, "boot")
    solo.inject(machine, "ROW_REMAP_FAILURE", 1)
    repair = solo.asking(machine, within=600)
    assert {c["key"] for c in repair.facts["choices"]} == {"replace", "undo"}
    from healthboard.repairs.lifecycle import answer

    answer(repair.pk, actor=person("operator"), choice="replace", reason="the host is broken")
    repair = solo.repaired(machine, within=900)
    assert (repair.action, repair.outcome) == ("REPLACE", "REPLACED")
    solo.sound()


def test_nothing_starts_before_one_full_round_so_that_breadth_is_seen_first(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 2)
    repair = solo.until(lambda: solo.repair(machine), 40)
    assert (repair.not_before - repair.opened_at).total_seconds() >= 6
    solo.until(lambda: solo.calls(machine)[DRAIN], 60)
    call = Call.objects.filter(repair=repair).first()
    assert call.intended_at >= repair.not_before

"""Stopped between any two steps, a repair takes back what it did, all of it, and nothing that anybody else did."""

from __future__ import annotations

import pytest

from healthboard.cases.answers import undo
from healthboard.refusals import Closed
from healthboard.repairs.lifecycle import answer, ask_stop
from healthboard.repairs.models import Call, Occupancy, Repair
from healthboard.sandbox.ticks.groups import drop_member
from tests.repairs.driver import person

DRAIN = "UpdateContainerInstancesState"

POOLS = {"train": "train=group:3", "solo": "solo=template:3"}
#: before the irreversible step, by action and pool
STEPS = {
    ("XID_79", "train"): ("drain", "standby", "replacement", "tasks"),
    ("XID_79", "solo"): ("drain", "launch", "replacement", "tasks"),
    ("XID_95", "train"): ("drain", "step_aside", "tasks", "reboot"),
    ("XID_95", "solo"): ("drain", "tasks", "reboot"),
}
CASES = [(code, pool, step) for (code, pool), steps in STEPS.items() for step in steps]


def restored(drive, machine, pool, size=3):
    world = drive.fleet.world
    assert machine.state == "running"
    assert drive.fleet.container(machine).status == "ACTIVE"
    alive = [i for i in world.instances.values() if i.state in ("running", "pending") and i.pool == pool]
    assert len(alive) == size, [i.id for i in alive]
    if pool == "train":
        group = drive.group()
        assert group.desired == size
        assert [m["state"] for m in group.members.values() if m["state"] != "Terminating"] == ["InService"] * size
    assert not [c for c in world.containers.values() if c.status == "DRAINING"]
    assert not Occupancy.objects.filter(released_at=None).exists()
    drive.sound()


@pytest.mark.parametrize(("code", "pool", "step"), CASES)
def test_stopped_at_a_step_everything_is_as_before(db, drives, code, pool, step):
    drive = drives(POOLS[pool])
    drive.one_pass()
    machine = drive.machine(pool)
    drive.inject(machine, code, 0)
    drive.at_step(machine, step)
    ask_stop(drive.repair(machine).pk, actor=person("operator"))
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED", drive.said()
    assert not repair.facts.get("decremented"), "its place is back"
    assert not drive.calls(machine)["TerminateInstances"] and not drive.calls(machine)["RebootInstances"]
    drive.until(lambda: all(i.state != "shutting-down" for i in drive.fleet.world.instances.values()), 30)
    restored(drive, machine, pool)
    case = drive.case(machine)
    assert case.state == "WAITING"
    drive.steps(8, 2)
    assert drive.repair(machine).pk == repair.pk, "after a person's stop nothing starts by itself again"


def test_an_undo_in_its_window_makes_no_call_at_all(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_119", 0)
    case = drive.opened(machine)
    drive.decide(case, action="")
    drive.steps(5, 2)
    undo(case.pk, actor=person("operator"))
    drive.steps(20, 2)
    assert not drive.calls()
    case.refresh_from_db()
    assert case.state == "WAITING"
    assert drive.repair(machine).state == "CANCELLED"
    assert case.decisions.get().outcome == "UNDONE"
    drive.sound()


def test_after_the_irreversible_step_it_is_too_late(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "terminate")
    drive.until(lambda: drive.calls(machine)["TerminateInstances"], 30)
    with pytest.raises(Closed):
        ask_stop(drive.repair(machine).pk, actor=person("operator"))
    assert drive.repaired(machine).outcome == "REPLACED"


def test_once_detached_no_undo_is_offered_or_carried_out(db, drives):
    """Of its group no longer, it cannot go back: who undid it would have a broken machine serve that nobody owns."""
    drive = drives(POOLS["train"])
    drive.one_pass()
    machine, operator = drive.machine("train"), person("operator")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "detach")
    machine.protected = True  # since room was proved
    repair = drive.asking(machine)
    assert "Termination protection is on" in repair.why_waiting and not drive.calls(machine)["DetachInstances"]
    assert {c["key"] for c in repair.facts["choices"]} == {"again", "undo"}, "as long as it can be undone"
    machine.protected = False
    answer(repair.pk, actor=operator, choice="again", reason="it is off now")
    drive.at_step(machine, "terminate")
    drive.fleet.world.instances[repair.replacement.instance_id].type = "g6e.12xlarge"
    repair = drive.asking(machine)
    assert "the replacement stopped serving" in repair.why_waiting
    assert {c["key"] for c in repair.facts["choices"]} == {"wait_longer", "leave"}
    before = drive.calls()
    repair.facts["choices"].append({"key": "undo", "title": "Stop and undo", "needs": "decide"})  # as it once was
    Repair.objects.filter(pk=repair.pk).update(facts=repair.facts)
    answer(repair.pk, actor=operator, choice="undo", reason="keep it")
    repair = drive.asking(machine)
    assert repair.why_waiting == "It cannot be undone: the irreversible step was taken."
    assert {c["key"] for c in repair.facts["choices"]} == {"again", "leave"}
    answer(repair.pk, actor=operator, choice="leave", reason="I look after it")
    assert drive.repaired(machine).outcome == "LEFT" and drive.calls() == before
    drive.sound()


def test_a_stop_is_heard_while_it_asks(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "replacement")
    drive.fleet.world.instances[drive.repair(machine).replacement.instance_id].type = "g6e.12xlarge"
    repair = drive.asking(machine)
    ask_stop(repair.pk, actor=person("operator"))
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED"
    assert drive.fleet.container(machine).status == "ACTIVE"
    assert not drive.calls(machine)["TerminateInstances"]


@pytest.mark.parametrize("step", ["drain", "launch", "tasks"])
def test_what_somebody_else_drained_stays_drained(db, drives, step):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.fleet.drain(machine)
    drive.steps(7)
    drive.one_pass()
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, step)
    ask_stop(drive.repair(machine).pk, actor=person("operator"))
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED"
    assert drive.fleet.container(machine).status == "DRAINING"
    assert drive.calls(machine) == {DRAIN: 1}  # the other's own


def test_a_reboot_leaves_drained_what_somebody_else_had_drained(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.fleet.drain(machine)
    drive.steps(7)
    drive.inject(machine, "XID_95", 0)
    repair = drive.repaired(machine, within=500)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REBOOTED")
    assert drive.fleet.container(machine).status == "DRAINING"
    assert drive.calls(machine) == {DRAIN: 1, "RebootInstances": 1}


def test_a_launch_whose_answer_was_lost_is_found_and_removed(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.rules({"service": "ec2", "operation": "RunInstances", "do": "drop_after", "times": 1})
    lost = Call.objects.filter(operation="RunInstances", outcome="unknown")
    drive.until(lost.exists, 60, 0.5)
    assert drive.repair(machine).replacement is None
    ask_stop(drive.repair(machine).pk, actor=person("operator"))
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED"
    drive.until(lambda: all(i.state != "shutting-down" for i in drive.fleet.world.instances.values()), 30)
    restored(drive, machine, "solo")


def test_evidence_that_clears_undoes_a_repair_before_its_irreversible_step(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_154", 0)
    drive.one_pass()
    drive.at_step(machine, "tasks")
    drive.mend(machine, "XID_154")
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED" and not drive.calls(machine)["RebootInstances"]
    assert drive.fleet.container(machine).status == "ACTIVE"
    drive.until(lambda: drive.case(machine).state == "CLOSED", 90)
    assert drive.case(machine).resolution == "CLEARED"


def test_back_in_service_a_silent_node_counts_as_silent_again(db, drives):
    from healthboard.fleet.models import Head

    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.one_pass()
    drive.at_step(machine, "tasks")
    assert Head.objects.filter(instance__instance_id=machine.id, ended_by_us=True).exists()
    ask_stop(drive.repair(machine).pk, actor=person("operator"))
    drive.repaired(machine)
    assert not Head.objects.filter(instance__instance_id=machine.id, ended_by_us=True).exists()


def test_what_registers_after_it_was_found_unknown_to_ecs_is_drained_before_it_is_ended(db, drives):
    """Between the two steps that remove our launch its agent may start, and ECS gives it tasks."""
    drive = drives(POOLS["solo"])
    drive.one_pass()
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "replacement")
    new = drive.fleet.world.instances[drive.repair(machine).replacement.instance_id]
    drive.until(lambda: new.agent_at is not None, 100, 0.5)
    new.agent_at += 10_000
    ask_stop(drive.repair(machine).pk, actor=person("operator"))
    drive.at_step(machine, "undo_launch")
    assert not drive.calls(new)[DRAIN], "nothing to drain yet"
    new.agent_at = drive.fleet.clock()
    drive.until(lambda: new.id in drive.fleet.world.container_of and drive.fleet.running(new), 60, 0.5)
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED", drive.said()
    assert drive.calls(new) == {"RunInstances": 1, DRAIN: 1, "TerminateInstances": 1}
    restored(drive, machine, "solo")


def test_what_is_no_member_of_the_group_is_not_ended_by_an_undo(db, drives):
    drive = drives(POOLS["train"])
    drive.one_pass()
    machine = drive.machine("train")
    drive.inject(machine, "XID_79", 0)
    new = drive.until(lambda: (r := drive.repair(machine)) and r.replacement and r.replacement.instance_id, 100)
    with drive.fleet.engine.sandbox.lock:  # somebody detaches it
        drop_member(drive.group(), new)
        drive.fleet.world.instances[new].tags = {}
        drive.group().desired -= 1
    repair = drive.repair(machine)
    ask_stop(repair.pk, actor=person("operator"))
    repair = drive.asking(machine)
    assert repair.why_waiting == f"{new} was launched for this repair and is no member of its group: it is not ended."
    assert {c["key"] for c in repair.facts["choices"]} == {"again", "leave"}
    answer(repair.pk, actor=person("operator"), choice="leave", reason="it is used elsewhere")
    assert drive.repaired(machine).outcome == "LEFT"
    assert drive.calls(new) == {} and drive.fleet.world.instances[new].state == "running"
    assert drive.fleet.container(machine).status == "ACTIVE" and drive.group().desired == 3

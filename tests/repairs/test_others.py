"""Whatever a group, ECS, Spot or a person does to the instance meanwhile is a normal outcome at every step."""

from __future__ import annotations

import pytest

from healthboard.audit.models import AuditRow
from healthboard.repairs import lifecycle
from healthboard.sandbox.launch import stop, terminate
from healthboard.sandbox.ticks.groups import drop_member, set_member
from tests.repairs.driver import person
from workers.repair import engine
from workers.repair.results import End
from workers.repair.run import Run

POOLS = {"train": "train=group:3", "solo": "solo=template:3"}
DRAIN = "UpdateContainerInstancesState"


def at(drives, pool, code, step):
    drive = drives(POOLS[pool])
    drive.one_pass()
    machine = drive.machine(pool)
    drive.inject(machine, code, 0)
    drive.at_step(machine, step)
    return drive, machine


def ends(drive, machine):
    with drive.fleet.engine.sandbox.lock:
        terminate(drive.fleet.world, machine, "Server.SpotInstanceTermination")


@pytest.mark.parametrize("step", ["drain", "launch", "replacement", "tasks", "terminate"])
def test_a_template_instance_that_others_end_closes_the_repair_and_leaves_one_replacement_at_most(db, drives, step):
    drive, machine = at(drives, "solo", "XID_79", step)
    ends(drive, machine)
    repair = drive.repaired(machine)
    assert repair.state == "SUCCEEDED", drive.said()
    assert repair.outcome == ("INSTANCE_GONE" if step in ("drain", "launch") else "REPLACED")
    assert drive.case(machine).state == "CLOSED"
    assert drive.fleet.engine.sandbox and not drive.calls(machine)["TerminateInstances"]
    drive.sound()


def test_what_was_launched_for_it_takes_its_place_only_while_it_is_there(db, drives):
    drive, machine = at(drives, "solo", "XID_79", "tasks")
    drive.working = False
    run = Run(drive.repair(machine))
    new = run.replacement()
    assert engine._ended_by_others(run) == End(True, "REPLACED", f"somebody else ended it; {new} takes its place")
    type(new).objects.filter(pk=new.pk).update(gone_at=run.repair.opened_at)
    told = engine._ended_by_others(run)
    assert told.outcome == "INSTANCE_GONE" and str(new) in told.why


@pytest.mark.parametrize("step", ["drain", "standby", "replacement", "tasks"])
def test_a_group_member_that_others_end_leaves_the_group_as_large_as_it_was(db, drives, step):
    drive, machine = at(drives, "train", "XID_79", step)
    ends(drive, machine)
    repair = drive.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED_BY_GROUP"), drive.said()
    drive.until(lambda: sorted(m["state"] for m in drive.group().members.values()) == ["InService"] * 3, 120)
    assert drive.group().desired == 3
    drive.sound()


@pytest.mark.parametrize("step", ["tasks", "boot"])
def test_a_member_that_stepped_aside_and_was_ended_gives_its_place_back(db, drives, step):
    drive, machine = at(drives, "train", "XID_95", step)
    assert drive.group().desired == 2
    ends(drive, machine)
    repair = drive.repaired(machine)
    assert repair.outcome == "REPLACED_BY_GROUP", drive.said()
    assert drive.group().desired == 3
    drive.until(lambda: sorted(m["state"] for m in drive.group().members.values()) == ["InService"] * 3, 120)
    drive.sound()


def bound(drive, machine, *before):
    """The launch of its group that is to replace it, once it is another one than those."""

    def found():
        new = drive.repair(machine).replacement
        return new if new and new.instance_id not in before else None

    return drive.fleet.world.instances[drive.until(found, 150, 1.0).instance_id]


def test_a_launch_of_its_group_that_ends_gives_way_to_the_groups_next(db, drives):
    drive, machine = at(drives, "train", "XID_79", "replacement")
    first = bound(drive, machine)
    ends(drive, first)
    second = bound(drive, machine, first.id)
    assert machine.state == "running" and not drive.calls(machine)["DetachInstances"]
    drive.at_step(machine, "detach")
    with drive.fleet.engine.sandbox.lock:  # it has served, and its group ends it
        set_member(drive.group(), second.id, said_unhealthy=drive.fleet.world.now())
    third = bound(drive, machine, first.id, second.id)
    repair = drive.repaired(machine)
    assert (repair.outcome, repair.replacement.instance_id) == ("REPLACED", third.id), drive.said()
    assert AuditRow.objects.filter(verb="repair.replacement_ended", repair_id=repair.pk).count() == 2
    failed = repair.launches.filter(outcome="FAILED")
    assert [row.why for row in failed] == [f"{first.id} ended before it served"]
    assert drive.group().desired == 3
    drive.sound()


@pytest.mark.parametrize("then", ["undo", "ended once it served"])
def test_a_replacement_of_our_own_that_ends_is_followed_by_another_only_by_a_persons_word(db, drives, then):
    drive, machine = at(drives, "solo", "XID_79", "replacement")
    first = bound(drive, machine)
    if then == "ended once it served":
        drive.at_step(machine, "terminate")
    ends(drive, first)
    repair = drive.asking(machine)
    assert f"The replacement {first.id} has ended" in repair.why_waiting and repair.step == "replacement"
    assert [c["key"] for c in repair.facts["choices"]] == ["launch_again", "undo"]
    assert machine.state == "running" and drive.calls()["RunInstances"] == 1, "nothing is launched by itself"
    if then == "undo":  # before what the other launch gave is known
        drive.rules({"service": "ec2", "operation": "RunInstances", "do": "drop_after", "times": 1})
    lifecycle.answer(repair.pk, actor=person(), choice="launch_again", reason="the zone is well again")
    if then == "undo":
        drive.until(lambda: drive.calls()["RunInstances"] == 2, 60, 0.5)
        assert drive.repair(machine).replacement.instance_id == first.id
        lifecycle.ask_stop(repair.pk, actor=person())
    repair = drive.repaired(machine)
    second = drive.fleet.world.instances[repair.replacement.instance_id]
    assert second.id != first.id and drive.calls()["RunInstances"] == 2
    made = repair.calls.filter(operation="RunInstances")
    assert len({call.token for call in made}) == 2 and not drive.calls(first)["TerminateInstances"]
    failed = [row.why for row in repair.launches.filter(outcome="FAILED")]
    assert failed == ([] if then == "ended once it served" else [f"{first.id} ended before it served"])
    if then == "undo":
        assert repair.state == "CANCELLED" and drive.calls(second)["TerminateInstances"] == 1, drive.said()
        assert machine.state == "running"
    else:
        assert repair.outcome == "REPLACED" and second.state == "running", drive.said()
    drive.sound()


def test_an_undo_after_its_groups_launch_ended_takes_the_next_one_back(db, drives):
    """Else the group would stay one too large, and nobody would know."""
    drive, machine = at(drives, "train", "XID_79", "replacement")
    first = bound(drive, machine)
    ends(drive, first)
    lifecycle.ask_stop(drive.repair(machine).pk, actor=person("operator"))
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED", drive.said()
    second = drive.fleet.world.instances[repair.replacement.instance_id]
    assert second.id != first.id and drive.calls(second)["TerminateInstanceInAutoScalingGroup"] == 1
    drive.until(lambda: sorted(m["state"] for m in drive.group().members.values()) == ["InService"] * 3, 120)
    assert machine.state == "running" and drive.group().desired == 3
    drive.sound()


def test_somebody_takes_it_out_of_its_group(db, drives):
    drive, machine = at(drives, "train", "XID_79", "drain")
    with drive.fleet.engine.sandbox.lock:
        drop_member(drive.group(), machine.id)
        machine.tags = {k: v for k, v in machine.tags.items() if k != "aws:autoscaling:groupName"}
        drive.group().desired -= 1
    repair = drive.asking(machine)
    assert "out of its Auto Scaling group" in repair.why_waiting or "owner" in repair.why_waiting
    assert machine.state == "running"


def test_somebody_puts_it_into_a_group(db, drives):
    drive = drives("train=group:3,solo=template:3")
    drive.one_pass()
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "tasks")
    with drive.fleet.engine.sandbox.lock:
        group = drive.group()
        group.members = {**group.members, machine.id: {"state": "InService", "until": None, "protected": False,
                                                       "version": "2", "health": "Healthy"}}  # fmt: skip
        group.desired += 1
        machine.tags = {**machine.tags, "aws:autoscaling:groupName": group.id}
    repair = drive.asking(machine)
    assert "into an Auto Scaling group" in repair.why_waiting
    assert not drive.calls(machine)["TerminateInstances"]


@pytest.mark.parametrize(("pool", "step"), [("solo", "tasks"), ("train", "tasks")])
def test_somebody_sets_it_back_to_active(db, drives, pool, step):
    drive, machine = at(drives, pool, "XID_79", step)
    drive.fleet.container(machine).status = "ACTIVE"
    repair = drive.asking(machine)
    assert "ACTIVE" in repair.why_waiting
    assert {c["key"] for c in repair.facts["choices"]} == {"drain_again", "undo"}
    from healthboard.repairs.lifecycle import answer

    answer(repair.pk, actor=person("operator"), choice="drain_again", reason="it is broken")
    assert drive.repaired(machine).outcome == "REPLACED"
    drive.sound()


def test_somebody_takes_it_out_of_standby(db, drives):
    drive, machine = at(drives, "train", "XID_79", "tasks")
    with drive.fleet.engine.sandbox.lock:
        set_member(drive.group(), machine.id, state="InService", until=None)
        drive.group().desired += 1
    repair = drive.asking(machine)
    assert "no longer Standby" in repair.why_waiting and machine.state == "running"
    assert not drive.calls(machine)["DetachInstances"]


def test_somebody_stops_it(db, drives):
    drive, machine = at(drives, "solo", "XID_79", "replacement")
    with drive.fleet.engine.sandbox.lock:
        stop(drive.fleet.world, machine)
    repair = drive.until(lambda: (r := drive.repair(machine)) and (r.closed_at or r.state == "ASKING") and r, 300)
    assert repair.state == "ASKING" or repair.outcome == "REPLACED"
    drive.sound()


def test_a_pause_tag_is_read_before_every_step_even_of_an_undo(db, drives):
    drive, machine = at(drives, "solo", "XID_79", "replacement")
    before = drive.calls()
    machine.tags = {**machine.tags, "healthboard:pause": "yes"}
    drive.steps(20, 2)
    repair = drive.repair(machine)
    assert "pause" in repair.why_waiting and drive.calls() == before and machine.state == "running"
    from healthboard.repairs.lifecycle import ask_stop

    ask_stop(repair.pk, actor=person("operator"))
    drive.steps(5, 2)
    assert drive.calls() == before
    machine.tags = {k: v for k, v in machine.tags.items() if k != "healthboard:pause"}
    container = drive.fleet.container(machine)
    container.tags = {**container.tags, "healthboard:pause": "yes"}
    drive.steps(5, 2)
    assert drive.calls() == before and "container instance" in drive.repair(machine).why_waiting
    container.tags = {k: v for k, v in container.tags.items() if k != "healthboard:pause"}
    assert drive.repaired(machine).state == "CANCELLED"
    drive.sound()


def test_an_owner_that_changes_under_way_ends_the_acting(db, drives):
    from healthboard.fleet.models import Instance

    drive, machine = at(drives, "solo", "XID_79", "replacement")
    before = drive.calls(machine)
    drive.hands.append(lambda: Instance.objects.filter(instance_id=machine.id).update(owner="OTHER"))
    collect, drive.collect = drive.collect, lambda: (collect(), drive.hands[-1]())
    repair = drive.asking(machine)
    assert "OTHER" in repair.why_waiting and drive.calls(machine) == before and machine.state == "running"


@pytest.mark.parametrize("step", ["drain", "launch", "replacement", "tasks", "detach", "terminate"])
def test_the_stop_switch_at_any_step_stops_every_later_call(db, drives, step):
    from healthboard.repairs import brakes

    pool = "train" if step == "detach" else "solo"
    drive, machine = at(drives, pool, "XID_79", step)
    brakes.stop(person("operator"), "look first")
    before = drive.calls()
    drive.steps(13, 2)
    assert drive.calls() == before and "stop switch" in drive.repair(machine).why_waiting.lower()
    brakes.resume(person("admin"), "fine")
    assert drive.repaired(machine).outcome == "REPLACED"
    drive.sound()


def test_blind_sources_hold_what_is_scheduled(db, drives):
    drive = drives(POOLS["solo"])
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.until(lambda: drive.repair(machine), 40)
    drive.fleet.engine.sandbox.set_mode("off")
    drive.steps(20, 2)
    assert drive.repair(machine).state == "SCHEDULED" and not drive.calls()
    drive.fleet.engine.sandbox.set_mode("ok")
    assert drive.repaired(machine).outcome == "REPLACED"
    drive.sound()


def test_what_we_drain_after_others_took_their_drain_back_is_ours_to_take_back(db, drives):
    drive = drives(POOLS["solo"])
    drive.one_pass()
    machine = drive.machine("solo")
    drive.fleet.container(machine).status = "DRAINING"
    drive.inject(machine, "XID_62", 0)
    assert drive.at_step(machine, "tasks").facts["drained_by_other"]
    drive.fleet.container(machine).status = "ACTIVE"
    from healthboard.repairs.lifecycle import answer

    answer(drive.asking(machine).pk, actor=person("operator"), choice="drain_again", reason="it is broken")
    assert drive.repaired(machine).outcome == "REBOOTED"
    assert drive.calls(machine)[DRAIN] == 2 and drive.fleet.container(machine).status == "ACTIVE"
    drive.sound()

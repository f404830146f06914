"""Leaving service, where others move at the same time: what is theirs stays theirs, what is ours goes back, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from healthboard.repairs import lifecycle
from healthboard.repairs.models import Call, Repair
from healthboard.sandbox.launch import terminate
from healthboard.sandbox.ticks.groups import set_member
from workers.repair import turns
from workers.repair.results import Ask, Done, Skip, Wait
from workers.repair.run import Run
from workers.repair.steps import leave, prepare, reboot, undo

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def train(db, drives):
    return drives("train=group:4")


def held(drive, machine) -> Run:
    """Its repair in our hands: the loop leaves it alone."""
    drive.working = False
    row = drive.repair(machine)
    Repair.objects.filter(pk=row.pk).update(lease_until=None, next_at=row.opened_at)
    return Run(lifecycle.claim(row.pk, "host:1"))


def settled(drive, machine) -> Run:
    """As `held`, once what was done before must show."""
    drive.fleet.advance(30, 30)
    drive._set()
    return held(drive, machine)


def stepped_aside(drive):
    drive.one_pass()
    machine = drive.machine("train")
    drive.inject(machine, "XID_95", 0)
    drive.at_step(machine, "tasks")
    drive.until(lambda: drive.group().members[machine.id]["state"] == "Standby", 60, 0.5)
    assert drive.group().desired == 3
    return machine


def scaled_in(drive, but):
    """Somebody else wants one less."""
    with drive.fleet.engine.sandbox.lock:
        group = drive.group()
        other = next(id_ for id_, m in group.members.items() if m["state"] == "InService" and id_ != but.id)
        group.desired -= 1
        set_member(group, other, state="Terminating", until=None)
        terminate(drive.fleet.world, drive.fleet.world.instances[other], "Server.AutoScaling")


def sizes(machine) -> list[int]:
    rows = Call.objects.filter(target=machine.id, operation="SetDesiredCapacity").order_by("pk")
    return [c.request["DesiredCapacity"] for c in rows]


def ends(drive, machine):
    with drive.fleet.engine.sandbox.lock:
        terminate(drive.fleet.world, machine, "Server.SpotInstanceTermination")


def test_only_its_own_place_goes_back_to_a_group_that_others_made_smaller_meanwhile(train):
    machine = stepped_aside(train)
    scaled_in(train, but=machine)
    ends(train, machine)
    repair = train.repaired(machine)
    assert repair.outcome == "REPLACED_BY_GROUP", train.said()
    assert sizes(machine) == [3] and train.group().desired == 3, "two that others want, and its own place"
    train.sound()


def test_its_place_is_added_to_what_others_made_of_the_group_once_whatever_comes_of_it(train):
    machine = stepped_aside(train)
    run = held(train, machine)
    turns._change(run, "REPLACE", "the reboot did not help")
    train.group().maximum = 3
    asked = leave.standby(run)
    assert isinstance(asked, Ask) and "as large as it may be" in asked.why
    train.group().maximum, train.group().desired = 9, 5
    run.look_again()
    train.rules({"operation": "SetDesiredCapacity", "do": "drop_before", "times": 1})
    assert isinstance(leave.standby(run), Wait) and sizes(machine) == [6] and train.group().desired == 5
    run = settled(train, machine)
    assert isinstance(leave.standby(run), Wait) and sizes(machine) == [6, 6] and train.group().desired == 6
    train.group().desired = 4
    run.look_again()
    assert isinstance(leave.raise_desired(run), Wait), "what we did may not show yet"
    run = settled(train, machine)
    assert "somebody else has set desired capacity to 4" in leave.raise_desired(run).note
    train.group().desired = 6
    run.look_again()
    assert "is 6 again" in leave.raise_desired(run).note
    assert sizes(machine) == [6, 6] and run.facts["desired_before"] == 6 and not run.facts["decremented"]


def test_no_place_goes_back_where_it_may_be_back_already(train):
    machine = stepped_aside(train)
    run = held(train, machine)
    train.group().maximum, train.group().desired = 9, 4
    run.__dict__["look"] = replace(run.look_again(), state="terminated", lifecycle="")
    assert isinstance(leave.raise_desired(run), Done), "it may have been taken out of Standby before it was ended"
    run.change("autoscaling", "ExitStandby", {"AutoScalingGroupName": "train-asg", "InstanceIds": [machine.id]})
    run.look_again()
    assert isinstance(leave.raise_desired(run), Done), "rejoining has put it back"
    assert sizes(machine) == [] and train.group().desired == 5


def test_a_standby_that_a_later_rung_meets_is_ours_only_while_it_has_not_rejoined_since(train):
    drive, group = train, train.group()
    machine = drive.machine("train")
    drive.inject(machine, "XID_95", 0)
    drive.at_step(machine, "boot")
    run = held(drive, machine)
    turns._change(run, "REPLACE", "the reboot did not help")
    run.look_again()
    assert run.look.lifecycle == "Standby" and prepare._room_in_group(run) is None, "this one is ours"

    set_member(group, machine.id, state="InService")
    run.look_again()
    assert isinstance(reboot.rejoin(run), Done)
    set_member(group, machine.id, state="Standby")
    run.look_again()
    assert prepare._room_in_group(run) == "Somebody else put it into Standby"
    assert isinstance(undo.undo_standby(run), Skip), "and stays theirs"
    run = settled(drive, machine)
    for step in (leave.standby, leave.step_aside):
        assert "shows it as Standby" in step(run).why, "also where they did it after it was asked whether there is room"

    set_member(group, machine.id, state="InService")
    run.look_again()
    run = settled(drive, machine)
    assert isinstance(leave.standby(run), Wait)
    set_member(group, machine.id, state="Standby")
    run.look_again()
    assert prepare._room_in_group(run) is None, "it is ours again"


def test_neither_climbing_nor_an_earlier_drain_of_ours_makes_somebody_elses_drain_ours(db, drives):
    drive = drives("solo=template:3")
    drive.one_pass()
    machine = drive.machine("solo")
    drive.fleet.drain(machine)
    drive.steps(7)
    drive.inject(machine, "XID_95", 0)
    assert drive.at_step(machine, "tasks").facts["drained_by_other"]
    run = held(drive, machine)
    turns._change(run, "REPLACE", "the reboot did not help")
    assert "somebody else" in leave.drain(run).note and run.facts["drained_by_other"]
    assert isinstance(undo.undo_drain(run), Skip)
    assert drive.calls(machine) == {DRAIN: 1}, "the other's own"

    drive.fleet.container(machine).status = "ACTIVE"
    run.look_again()
    assert isinstance(leave.drain(run), Wait)
    run.look_again()
    assert leave.drain(run).note == "DRAINING" and not run.facts["drained_by_other"], "this one is ours"
    run.change("ecs", DRAIN, leave._state(run, "ACTIVE"))
    drive.fleet.drain(machine)
    run.look_again()
    assert "somebody else" in leave.drain(run).note and isinstance(undo.undo_drain(run), Skip)

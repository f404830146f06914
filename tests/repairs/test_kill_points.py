"""Killed at every commit and every changing call of a repair, each once: nothing is done twice, and it ends as without."""

from __future__ import annotations

import pytest

from tests.repairs.kills import killing

pytestmark = pytest.mark.django_db(transaction=True)
DRAIN = "UpdateContainerInstancesState"
#: a reboot has no token: once it is intended it is never sent again, so that a kill before it was sent asks a person
UNSENT = {("after", "reboot", "intend"), ("outside before", "reboot", "AWS RebootInstances")}
EXPECTED = {
    ("XID_79", "solo"): ("REPLACED", {DRAIN: 1, "TerminateInstances": 1}),
    ("XID_79", "train"): ("REPLACED", {DRAIN: 1, "EnterStandby": 1, "DetachInstances": 1, "TerminateInstances": 1}),
    ("XID_95", "train"): ("REBOOTED", {DRAIN: 2, "EnterStandby": 1, "RebootInstances": 1, "ExitStandby": 1}),
    ("XID_95", "solo"): ("REBOOTED", {DRAIN: 2, "RebootInstances": 1}),
}
POOLS = {"train": "train=group:3", "solo": "solo=template:3"}


def outside(seen, operation):
    return {when for when, _, what in seen if what == f"AWS {operation}"}


@pytest.mark.parametrize(("code", "pool"), list(EXPECTED))
def test_killed_at_every_point_it_ends_as_without_a_kill(drives, code, pool):
    drive = drives(POOLS[pool])
    machine = drive.machine(pool)
    outcome, calls = EXPECTED[code, pool]
    drive.inject(machine, code, 0)
    with killing(drive, lambda point: point not in UNSENT) as kills:
        repair = drive.repaired(machine, within=900)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", outcome), drive.said()
    assert drive.calls(machine) == calls
    for operation in calls:
        assert outside(kills.at, operation) | outside(kills.seen, operation) == {"outside before", "outside after"}
    assert len(kills.at) >= 40, kills.at
    ours = [i for i in drive.fleet.world.instances.values() if i.pool == pool and i.state != "terminated"]
    assert len(ours) == 3
    if pool == "train":
        assert drive.group().desired == 3
        assert sorted(m["state"] for m in drive.group().members.values()) == ["InService"] * 3
    assert drive.case(machine).resolution == "REPAIRED"
    drive.sound()


@pytest.mark.parametrize("point", sorted(UNSENT))
def test_a_reboot_that_was_intended_but_maybe_not_sent_is_never_repeated_but_asked(drives, point):
    drive = drives(POOLS["solo"])
    machine = drive.machine("solo")
    drive.inject(machine, "XID_95", 0)
    with killing(drive, lambda reached: reached == point):
        repair = drive.asking(machine, within=900)
    assert repair.step == "boot" and not drive.calls(machine)["RebootInstances"]
    drive.sound()


LAUNCH = [
    ("outside before", "launch", "AWS RunInstances"),
    ("outside after", "launch", "AWS RunInstances"),
    ("before", "launch", "change"),
    ("after", "launch", "change"),
    ("after", "launch", "remember"),
    ("before", "launch", "assign_replacement"),
]


@pytest.mark.parametrize("point", LAUNCH)
def test_stopped_after_a_kill_around_the_launch_nothing_of_ours_is_left(drives, point):
    from healthboard.repairs.lifecycle import ask_stop
    from tests.repairs.driver import person

    drive = drives(POOLS["solo"])
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    with killing(drive, lambda reached: reached == point) as kills:
        drive.until(lambda: kills.at, 120, 0.5)
    ask_stop(drive.repair(machine).pk, actor=person("operator"))
    repair = drive.repaired(machine)
    assert repair.state == "CANCELLED", drive.said()
    drive.steps(5, 2)
    world = drive.fleet.world
    assert sorted(i.state for i in world.instances.values() if i.state != "terminated") == ["running"] * 3
    assert drive.fleet.container(machine).status == "ACTIVE"
    drive.sound()

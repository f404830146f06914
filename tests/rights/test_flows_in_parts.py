"""Whole repairs in a sandbox that asks the shipped IAM policies before every call, each part with its own rights."""

from __future__ import annotations

import pytest

from healthboard import operations
from healthboard.fleet.models import Source
from healthboard.repairs.models import Call, Repair
from tests.repairs import driver
from tests.rights import iam
from tests.rights.split import Split, gated

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def parts(db, drives, monkeypatch):
    """Makes a split drive behind a gate."""

    def make(pools: str) -> Split:
        gate = gated(monkeypatch)
        monkeypatch.setattr(driver, "Drive", Split)
        made = drives(pools)
        made.gate = gate
        return made

    return make


def test_every_call_of_replacing_and_rebooting_is_allowed_and_made_by_the_part_that_may(parts):
    """GROUP and TEMPLATE at the same time, first REPLACE, then REBOOT."""
    drive = parts("train=group:3,solo=template:3")
    drive.policy(soak_s=60)
    for code, outcome in (("XID_79", "REPLACED"), ("XID_95", "REBOOTED")):
        machines = [
            next(m for m in drive.fleet.pool(pool) if m.state == "running" and drive.repair(m) is None)
            for pool in ("solo", "train")
        ]
        for machine in machines:
            drive.inject(machine, code, 0)
        ended = [drive.repaired(machine) for machine in machines]
        assert [(repair.owner, repair.state, repair.outcome) for repair in ended] == [
            ("TEMPLATE", "SUCCEEDED", outcome), ("GROUP", "SUCCEEDED", outcome),
        ], drive.said()  # fmt: skip
    assert drive.gate.refused == []
    by = {process: {(s, o) for p, s, o in drive.gate.made if p == process} for process in ("web", "reader", "actor")}
    assert by["web"] == set()
    changing = {(service, name) for service, names in operations.CHANGING.items() for name in names}
    assert not by["reader"] & changing
    assert {name for _, name in by["actor"] & changing} == {
        DRAIN, "RunInstances", "TerminateInstances", "EnterStandby", "DetachInstances", "RebootInstances", "ExitStandby",
    }  # fmt: skip
    drive.sound()


def test_a_machine_that_is_not_managed_is_not_touched_and_a_person_is_asked(parts):
    """The tag is a lock outside of our code: AWS refuses, nothing is drained, and it stands on the case."""
    drive = parts("solo=template:3")
    machine = drive.machine("solo")
    machine.tags = {key: value for key, value in machine.tags.items() if key != "healthboard:managed"}
    drive.inject(machine, "XID_79", 1)
    repair = drive.asking(machine)
    assert repair.step == "drain" and "AccessDeniedException" in repair.why_waiting
    assert [refused.split(" on ")[0] for refused in drive.gate.refused] == [
        "actor: ec2:GetConsoleOutput", f"actor: ecs:{DRAIN}",
    ]  # fmt: skip
    assert set(Call.objects.values_list("operation", "outcome")) == {(DRAIN, "AccessDeniedException")}
    assert not drive.calls(machine)


def test_the_documented_deny_stops_every_change_and_reading_goes_on(parts):
    """Put on the actor's role in the middle of a repair: it waits where people see it, and goes on once it is taken off."""
    drive = parts("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 1)
    drive.until(lambda: drive.repair(machine) and drive.repair(machine).step == "replacement", 200)
    before = drive.calls()
    drive.gate.policies["actor"] = [*drive.gate.policies["actor"], *iam.policy("stop-policy")]
    repair = drive.asking(machine)
    assert repair.step == "terminate" and "UnauthorizedOperation" in repair.why_waiting
    assert drive.calls() == before
    drive.steps(10, 5.0)
    assert not Source.objects.exclude(error="").exists(), "reading goes on"
    other = drive.machine("solo", 1)
    drive.inject(other, "XID_94", 0)
    assert drive.until(lambda: drive.row(other).verdict != "HEALTHY", 60)
    drive.gate.policies["actor"] = drive.gate.policies["actor"][: -len(iam.policy("stop-policy"))]
    from healthboard.repairs.lifecycle import answer

    answer(repair.pk, actor=driver.person("operator"), choice="again", reason="the deny is off again")
    assert drive.repaired(machine).outcome == "REPLACED"
    assert Repair.objects.count() == 1
    drive.sound()


def test_with_the_actor_stopped_nothing_is_changed_all_else_goes_on_and_it_takes_up_where_it_was(parts):
    drive = parts("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 1)
    drive.until(lambda: drive.repair(machine) and drive.repair(machine).step == "replacement", 200)
    before, made = drive.calls(), drive.gate.made.total()
    tending, drive.sweep = drive.sweep, lambda: None  # its process is not there
    other = drive.machine("solo", 1)
    drive.inject(other, "XID_94", 0)
    assert drive.until(lambda: drive.row(other).verdict != "HEALTHY", 60) and drive.case(other) is None
    drive.steps(10, 5.0)
    assert drive.calls() == before and drive.gate.made.total() > made, "others read, and change nothing"
    assert not Source.objects.exclude(error="").exists()
    assert drive.repair(machine).step == "replacement" and machine.state == "running"
    drive.sweep = tending
    assert drive.repaired(machine).outcome == "REPLACED"
    drive.sound()

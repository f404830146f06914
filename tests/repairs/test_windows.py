"""Maintenance windows and blackouts: nothing begins while they are closed, and what has begun is carried to its end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Head
from healthboard.repairs import lifecycle, waiting
from healthboard.repairs.lifecycle import ask_stop
from healthboard.repairs.models import Occupancy
from tests.repairs.driver import person
from tests.repairs.test_dead_hosts import busy


@pytest.fixture
def solo(db, drives):
    return drives("solo=template:3")


def window(minutes: int, lasts: int = 240) -> str:
    """One that opens in so many minutes."""
    opens = clock.now() + timedelta(minutes=minutes)
    return f"daily {opens:%H:%M}-{opens + timedelta(minutes=lasts):%H:%M} UTC"


def blackout() -> str:
    now = clock.now()
    return f"{now - timedelta(days=1):%Y-%m-%d} to {now + timedelta(days=1):%Y-%m-%d} UTC: big run"


def waits(drive, machine, begins: str):
    return drive.until(lambda: (r := drive.repair(machine)) and r.why_waiting.startswith(begins) and r, 60)


def test_a_repair_decided_outside_its_window_waits_visibly_and_begins_when_it_opens(solo):
    machine = solo.machine("solo")
    solo.policy(windows=[window(2)])
    solo.inject(machine, "XID_79", 0)
    repair = waits(solo, machine, "Outside the maintenance window (daily ")
    assert repair.state == "SCHEDULED" and repair.automatic
    [row] = [w for w in waiting.waiting_for(repair.instance, solo.case(machine), repair) if w.kind == "window"]
    assert f"the next opening is {row.until:%Y-%m-%d %H:%M} UTC" in row.text and clock.now() < row.until
    assert "by itself" in row.then
    solo.steps(5)
    assert not solo.calls(machine) and not Occupancy.objects.exists()
    solo.until(lambda: solo.repair(machine).state == "RUNNING", 300, 3)
    assert row.until <= clock.now() < row.until + timedelta(seconds=10)
    done = solo.repaired(machine)
    assert (done.pk, done.outcome) == (repair.pk, "REPLACED")
    solo.sound()


def test_what_a_person_approves_in_a_blackout_waits_as_well_and_an_admin_may_lift_it(solo):
    machine = solo.machine("solo")
    solo.policy(mode_hardware="ask", blackouts=[blackout()], undo_s=0, expiry_s=300)
    solo.inject(machine, "XID_79", 0)
    case = solo.until(lambda: (c := solo.opened(machine)).state == "WAITING" and c)
    told = [w for w in waiting.waiting_for(case.instance, case) if w.kind == "window"]
    assert len(told) == 1 and told[0].text.startswith("What is approved now waits. In a blackout (")
    solo.decide(case)
    repair = waits(solo, machine, "In a blackout (")
    solo.steps(7, 50)
    assert clock.now() > repair.opened_at + timedelta(seconds=300), "its word expires, but not while it must not begin"
    assert not solo.calls(machine)
    solo.policy(blackouts=[])
    assert solo.repaired(machine).outcome == "REPLACED"


def test_what_waits_meets_what_its_policy_demands_by_the_time_it_begins(solo):
    machine, _ = busy(solo)
    solo.policy(blackouts=[blackout()], undo_s=0, drain_timeout_s=1800)
    solo.inject(machine, "XID_79", 0)
    waits(solo, machine, "In a blackout (")
    solo.policy(minimum_healthy=3, checkpoint=["train-hook"], drain_timeout_s=60, blackouts=[])
    waits(solo, machine, "Budget of solo: 0 of 0 ")
    solo.policy(minimum_healthy=2)
    repair = solo.at_step(machine, "checkpoint")
    solo.until(lambda: repair.calls.filter(operation="Checkpoint").exists(), 20)
    repair.refresh_from_db()
    assert (repair.settings["drain_timeout_s"], repair.settings["minimum_healthy"]) == (1800, 2), "never loosened"
    assert not solo.calls(machine), "the workload is asked, although nobody was to be when it was decided"
    [told] = AuditRow.objects.filter(verb="repair.tightened").values_list("summary", flat=True)
    assert told.endswith("checkpoint, minimum_healthy")
    solo.sound()


def test_what_one_attempt_found_out_is_forgotten_when_it_is_put_off(solo):
    solo.one_pass()
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "keep")
    solo.fleet.container(machine).status = "DRAINING"
    repair = solo.at_step(machine, "launch")
    assert repair.facts["drained_by_other"] and Head.objects.filter(instance=repair.instance, ended_by_us=True).exists()
    solo.policy(blackouts=[blackout()])
    repair = waits(solo, machine, "In a blackout (")
    assert repair.state == "SCHEDULED" and "drained_by_other" not in repair.facts
    assert not Head.objects.filter(instance=repair.instance, ended_by_us=True).exists(), "its silence is its own again"
    solo.fleet.container(machine).status = "ACTIVE"
    solo.policy(blackouts=[])
    assert solo.repaired(machine).outcome == "REPLACED" and solo.calls(machine)["UpdateContainerInstancesState"] == 1


def test_one_that_is_closed_before_anything_was_changed_is_put_off_and_gives_its_unit_back(solo):
    solo.one_pass()
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 0)
    first = solo.at_step(machine, "keep")
    assert Occupancy.objects.filter(repair=first, released_at=None).exists()
    solo.policy(blackouts=[blackout()])
    repair = waits(solo, machine, "In a blackout (")
    assert (repair.state, repair.step) == ("SCHEDULED", "") and not solo.calls(machine)
    assert not Occupancy.objects.exists(), "others may use the budget meanwhile"
    assert repair.steps.get(name="keep").state == "SKIPPED"
    solo.sound()
    solo.policy(blackouts=[])
    done = solo.repaired(machine)
    assert (done.pk, done.outcome) == (first.pk, "REPLACED") and done.steps.filter(name="recheck").count() == 2
    solo.sound()


def test_a_stop_in_the_moment_of_being_put_off_ends_it_at_once(solo, monkeypatch):
    """Not when the window opens, days later."""
    solo.one_pass()
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 0)
    first, put_off = solo.at_step(machine, "keep"), lifecycle.put_off

    def stopped_before(repair, why):
        lifecycle.ask_stop(repair.pk, actor=person("operator"))  # its worker has looked for a stop already
        put_off(repair, why)

    monkeypatch.setattr(lifecycle, "put_off", stopped_before)
    solo.policy(blackouts=[blackout()])
    done = solo.until(lambda: (r := solo.repair(machine)).state == "CANCELLED" and r, 30)
    assert (done.pk, done.outcome) == (first.pk, "CANCELLED") and done.outcome_why.endswith("asked to stop")
    assert not solo.calls(machine) and not Occupancy.objects.exists()
    solo.until(lambda: solo.case(machine).state != "DECIDED", 30)
    solo.sound()


def test_one_that_has_begun_to_drain_is_carried_to_its_end(solo):
    solo.one_pass()
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "drain")
    solo.until(lambda: solo.calls(machine), 20, 0.2)
    solo.policy(blackouts=[blackout()])
    assert solo.repaired(machine).outcome == "REPLACED"
    solo.sound()


def test_what_takes_nothing_from_anybody_is_not_held_and_neither_is_an_undo(solo):
    solo.one_pass()
    machine, other = solo.machine("solo"), solo.machine("solo", 1)
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "launch")
    solo.policy(blackouts=[blackout()], undo_s=0)
    ask_stop(solo.repair(machine).pk, actor=person("operator"))
    assert solo.repaired(machine).state == "CANCELLED"
    assert solo.fleet.container(machine).status == "ACTIVE"
    solo.inject(other, "XID_119", 0)
    case = solo.opened(other)
    solo.decide(case, "override", action="DIAGNOSE", reason="look")
    assert solo.until(lambda: (r := solo.repair(other)) and r.step == "ask_node" and r, 30)


def test_the_workloads_of_the_case_count_when_the_instance_has_emptied(solo):
    from healthboard.fleet.models import Task, Workload
    from healthboard.policies.models import Policy, PolicyVersion

    machine = solo.machine("solo")
    solo.policy(mode_hardware="ask", undo_s=0)
    solo.inject(machine, "XID_79", 0)
    case = solo.until(lambda: (c := solo.opened(machine)).state == "WAITING" and c)
    workload = Workload.objects.filter(tasks__instance=case.instance).exclude(kind="DAEMON").first()
    assert workload in case.workloads.all()
    policy = Policy.objects.create(name="held", workload=workload.name)
    data = {"name": "held", "workload": workload.name, "settings": {"blackouts": [blackout()]}}
    policy.current = PolicyVersion.objects.create(policy=policy, number=1, data=data, saved_at=clock.now())
    policy.save()
    Task.objects.filter(instance=case.instance).update(workload=None)
    solo.decide(case)
    waits(solo, machine, "In a blackout (")

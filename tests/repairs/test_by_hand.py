"""What people ask for by hand, carried out by the same loop."""

from __future__ import annotations

from healthboard.cases import by_hand
from healthboard.fleet.models import Gpu, Pool
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Call, Repair
from tests.repairs.driver import person


def _asked(drive, machine, action):
    row = drive.row(machine)
    by_hand.ask(row.pk, actor=person("operator"), action=action, reason="x", seen=by_hand.offer(row, action).seen)


def _ask(drive, machine, action):
    _asked(drive, machine, action)
    repair = drive.repaired(machine, seconds=5)
    assert (repair.action, repair.state, repair.requested_by) == (action, "SUCCEEDED", "operator-one"), drive.said()
    case = drive.case(machine)
    assert (case.state, case.resolution, case.code) == ("CLOSED", "DONE", "BY_HAND")


def test_a_good_machine_is_drained_returned_and_replaced(db, drives):
    drive = drives("solo=template:2")
    drive.policy(undo_s=1, soak_s=60)
    machine = drive.machine("solo")
    _ask(drive, machine, "DRAIN")
    assert drive.fleet.container(machine).status == "DRAINING"
    _ask(drive, machine, "RETURN")
    assert drive.fleet.container(machine).status == "ACTIVE"
    _ask(drive, machine, "REPLACE")
    assert machine.state in ("shutting-down", "terminated")
    assert len(drive.fleet.pool("solo")) == 2
    assert not Gpu.objects.exclude(condemned_at=None).exists(), "good hardware is given back, not condemned"
    drive.sound()


def test_a_drain_holds_its_unit_until_the_budget_counts_its_machine_as_out(db, drives):
    """Else quick drains of idle machines would go one after the other past the budget, all within one round."""
    drive = drives("solo=template:2")
    drive.policy(undo_s=1)
    for number in range(2):
        _asked(drive, drive.machine("solo", number), "DRAIN")
    first, second = (drive.machine("solo", number) for number in range(2))
    drive.due["collect"] = drive.offset + 60
    drive.steps(8)
    holds, waits = drive.repair(first), drive.repair(second)
    assert [drive.fleet.container(m).status for m in (first, second)] == ["DRAINING", "ACTIVE"]
    assert (holds.state, waits.state) == ("RUNNING", "SCHEDULED")
    assert "has still to see" in holds.why_waiting and "Budget of" in waits.why_waiting
    drive.due["collect"] = 0.0
    assert drive.repaired(first, 30).state == "SUCCEEDED"
    drive.steps(5, 2.0)
    waits = drive.repair(second)
    assert waits.state == "SCHEDULED" and "1 of 1 allowed are out" in waits.why_waiting
    assert drive.fleet.container(second).status == "ACTIVE"
    drive.sound()


def _managed(drives, status="DISABLED"):
    """A machine of Managed Instances, whose automatic repair is off."""
    drive = drives("solo=template:1", others=True)
    drive.policy(undo_s=1)
    drive.fleet.world.providers["managed"].auto_repair = status
    drive.steps(2, 6)
    return drive, drive.fleet.pool("managed")[0]


def test_a_machine_that_ecs_owns_and_does_not_repair_is_drained_and_returned(db, drives):
    drive, machine = _managed(drives)
    _ask(drive, machine, "DRAIN")
    assert drive.fleet.container(machine).status == "DRAINING"
    _ask(drive, machine, "RETURN")
    assert drive.fleet.container(machine).status == "ACTIVE"
    made = [call for call in Call.objects.filter(target=machine.id).values_list("operation", flat=True)]
    assert made == ["UpdateContainerInstancesState"] * 2
    drive.sound()


def test_once_ecs_repairs_it_again_nothing_more_is_done_to_it(db, drives):
    drive, machine = _managed(drives)
    _asked(drive, machine, "DRAIN")
    Pool.objects.filter(name="managed").update(auto_repair=True)
    drive.fleet.world.providers["managed"].auto_repair = "ENABLED"
    repair = drive.until(lambda: Repair.objects.filter(state="ASKING").first(), within=60)
    assert "ECS repairs it by itself now" in repair.why_waiting
    assert not Call.objects.exists() and drive.fleet.container(machine).status == "ACTIVE"


def test_a_return_that_fails_becomes_no_replacement(db, drives):
    """It holds no unit of the budget, and nobody was asked whether the machine may go."""
    drive = drives("solo=template:2")
    drive.policy(undo_s=1)
    machine = drive.machine("solo")
    _ask(drive, machine, "DRAIN")
    _asked(drive, machine, "RETURN")
    with drive.fleet.engine.sandbox.lock:
        drive.fleet.world.remove(drive.fleet.container(machine))
    repair = drive.asking(machine, 60)
    assert [choice["key"] for choice in repair.facts["choices"]] == ["again", "leave"]
    assert "asked for on the machine's own page" in repair.why_waiting

    earlier = [{"key": "replace", "title": "Replace it", "needs": "decide"}]
    Repair.objects.filter(pk=repair.pk).update(facts={**repair.facts, "choices": earlier})
    lifecycle.answer(repair.pk, actor=person("operator"), choice="replace", reason="asked by an earlier release")
    assert Repair.objects.get(pk=repair.pk).state == "RUNNING"
    repair = drive.asking(machine, 60)
    assert (repair.action, repair.step) == ("RETURN", "activate") and "not decided here" in repair.why_waiting
    lifecycle.answer(repair.pk, actor=person("operator"), choice="leave", reason="replaced by hand")
    assert drive.repaired(machine, 60).outcome == "LEFT"
    assert "TerminateInstances" not in drive.calls(machine)
    drive.sound()

"""A fault that follows the slot ends with a person, not with machine after machine."""

from __future__ import annotations

from healthboard.repairs.models import Repair


def test_the_same_fault_on_the_replacement_is_asked_and_nothing_is_replaced_again(db, drives):
    drive = drives("solo=template:2")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    new = drive.fleet.world.instances[drive.repaired(machine, seconds=3).replacement.instance_id]
    before = drive.calls()
    drive.inject(new, "XID_79", 1)
    case = drive.until(lambda: (c := drive.case(new)) and c.verdict == "HARDWARE" and c, 60, 3)
    drive.steps(4, 5)
    case.refresh_from_db()
    assert case.state == "WAITING" and "same kind of fault" in case.why_waiting
    assert Repair.objects.count() == 1 and drive.calls() == before
    drive.sound()

"""What people ask for by hand, carried out by the same loop."""

from __future__ import annotations

from healthboard.cases import by_hand
from healthboard.fleet.models import Gpu
from tests.repairs.driver import person


def _ask(drive, machine, action):
    row = drive.row(machine)
    by_hand.ask(row.pk, actor=person("operator"), action=action, reason="x", seen=by_hand.offer(row, action).seen)
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

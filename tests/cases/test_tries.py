"""Tries are counted by instance and by slot, each heavier than the last, and then a person decides."""

from __future__ import annotations

from itertools import pairwise

import pytest

from healthboard.cases import tries
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene
from tests.cases.test_evidence import broken

pytestmark = pytest.mark.usefixtures("time")


def ended(on, action="REPLACE", *, state="SUCCEEDED", code="", into=None, seconds=3600.0, **fields):
    """A repair of this instance that ended so long ago, perhaps with `into` as its replacement."""
    row = factories.repair(
        on, action=action, state=state, opened_at=factories.ago(seconds + 600), closed_at=factories.ago(seconds),
        carried_back_at=factories.ago(seconds), replacement=into, **fields,
    )  # fmt: skip
    if code:
        case = factories.case(on, code=code, state="CLOSED", verdict="HARDWARE", resolution="REPAIRED")
        factories.decision(case, kind="auto", repair=row)
    return row


def chain(count: int, code: str = "EC2_SYSTEM_IMPAIRED"):
    """Instances that replaced each other; the last one lives."""
    row = [scene.machine() for _ in range(count)]
    for old, new in pairwise(row):
        ended(old, code=code, into=new)
    return row[-1]


def test_one_repair_before_leaves_the_next_to_the_policy():
    on = broken()
    ended(on, "REBOOT")
    case = scene.read(on)
    assert (case.state, case.action) == ("DECIDED", "REPLACE")


def test_two_repairs_within_a_day_leave_it_to_a_person():
    on = broken()
    ended(on, "REBOOT", seconds=80_000)
    ended(on, "REBOOT", state="FAILED")
    case = scene.read(on)
    assert case.state == "WAITING" and "2 repairs within 24 hours" in case.why_waiting
    Repair.objects.update(closed_at=factories.ago(86_500))
    assert scene.read(on).state == "DECIDED", "what is older counts no more"


@pytest.mark.parametrize(("links", "state"), [(2, "DECIDED"), (3, "WAITING"), (5, "WAITING")])
def test_the_repairs_of_a_slot_are_counted_together(links, state):
    on = broken(chain(links))
    case = scene.read(on)
    assert case.state == state
    if state == "WAITING":
        assert f"over the {links} instances that took this place" in case.why_waiting


def test_a_chain_that_leads_back_to_itself_ends():
    first, second = scene.machine(), scene.machine()
    ended(first, into=second)
    ended(second, into=first)
    assert tries.slot(first) == [first.pk, second.pk]


def test_undone_before_anything_was_changed_is_no_try_and_after_it_is_one():
    on = broken()
    rows = [ended(on, state="CANCELLED") for _ in range(3)]
    assert tries.ended([on.pk]) == 0
    first = factories.steps(rows[0], "checkpoint", last="DONE")[0]
    factories.call(first, "Checkpoint", service="workload")
    factories.call(first, outcome="AccessDeniedException")
    assert tries.ended([on.pk]) == 0, "its workload was asked, and AWS refused: nothing was changed"
    for row in rows[:2]:
        factories.call(factories.steps(row, "drain", last="DONE")[0] if row != rows[0] else first)
    case = scene.read(on)
    assert case.state == "WAITING" and "2 repairs" in case.why_waiting


@pytest.mark.parametrize(("before", "state"), [("NVML_GPU_IS_LOST", "WAITING"), ("XID_95", "DECIDED")])
def test_the_same_kind_of_fault_on_the_replacement_stops_and_asks(before, state):
    case = scene.read(broken(chain(2, code=before)))
    assert case.code == "XID_79" and case.state == state
    if state == "WAITING":
        assert "same kind of fault (a GPU that is gone)" in case.why_waiting


def test_a_replacement_whose_repair_is_under_way_is_not_repaired_by_itself():
    old, new = scene.machine(), scene.machine()
    factories.repair(old, state="ASKING", replacement=new)
    case = scene.read(broken(new))
    assert case.state == "WAITING" and str(old) in case.why_waiting and "under way" in case.why_waiting


def test_what_was_tried_is_not_tried_again_but_something_heavier():
    ladder = ["REBOOT", "REPLACE"]
    assert tries.heavier("REBOOT", "TEMPLATE", ladder, []) == ("REBOOT", "")
    assert tries.heavier("REBOOT", "TEMPLATE", ladder, ["REBOOT"]) == ("REPLACE", "")
    assert tries.heavier("REPLACE", "TEMPLATE", ladder, ["REBOOT"]) == ("REPLACE", "")
    assert "nothing heavier" in tries.heavier("REBOOT", "TEMPLATE", ladder, ["REBOOT", "REPLACE"])[1]
    assert "nothing heavier" in tries.heavier("REBOOT", "PLAIN", ladder, ["REBOOT"])[1], "nobody can replace it"
    assert "nothing heavier" in tries.heavier("REBOOT", "TEMPLATE", ["REBOOT"], ["REBOOT"])[1]
    assert "tried" in tries.heavier("RELOCATE", "PLAIN", ladder, ["RELOCATE"])[1]


def rebooting(on):
    """A machine whose driver asks for a reboot, by two witnesses."""
    scene.acting()
    gpu = factories.gpus(on, 1)[0]
    scene.shows(on, "XID_143", gpu=gpu.uuid)
    factories.reading(on, "GPU_STATUS", "reset_required", channel="node", source="nvml", gpu=gpu.uuid,
                      since=factories.ago(60), count=20)  # fmt: skip
    return on


def test_after_a_reboot_that_did_not_last_comes_the_replacement():
    fresh, again = rebooting(scene.machine()), rebooting(scene.machine())
    ended(again, "REBOOT", seconds=7200)
    assert scene.read(fresh).action == "REBOOT"
    case = scene.read(again)
    assert (case.state, case.action) == ("DECIDED", "REPLACE") and "instead of REBOOT" in case.mode_why
    assert Repair.objects.get(instance=again, closed_at=None).action == "REPLACE"

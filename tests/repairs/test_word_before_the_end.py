"""A word that is taken away while the machine is being drained: before the irreversible step a person is asked, once."""

from __future__ import annotations

import pytest

from healthboard.notices.models import Notice
from healthboard.people.models import Grant
from healthboard.repairs.lifecycle import answer
from tests.repairs.driver import person
from tests.repairs.test_undo import restored


@pytest.mark.parametrize("choice", ["undo", "again"])
def test_without_its_word_a_drained_machine_is_asked_about_and_can_be_undone(db, drives, choice):
    drive = drives("solo=template:3")
    machine, olga = drive.machine("solo"), person("operator", "olga")
    drive.policy(mode_hardware="ask", undo_s=0)
    drive.inject(machine, "XID_79", 0)
    case = drive.until(lambda: (c := drive.opened(machine)).state == "WAITING" and c)
    drive.decide(case, by=olga)
    drive.at_step(machine, "replacement")
    Grant.objects.filter(user=olga.user).delete()
    repair = drive.asking(machine)
    assert repair.step == "terminate" and not repair.irreversible
    assert repair.why_waiting.startswith("Not carried to its end: olga, whose word this rests on,")
    assert [c["key"] for c in repair.facts["choices"]] == ["again", "undo"]
    drive.steps(5)
    assert Notice.objects.filter(kind="repair_asks").count() == 1
    if choice == "again":
        Grant.objects.create(user=olga.user, role="operator")
    answer(repair.pk, actor=person("operator", "otto"), choice=choice, reason="she left")
    done = drive.repaired(machine)
    if choice == "again":
        assert (done.outcome, drive.calls(machine)["TerminateInstances"]) == ("REPLACED", 1)
        return
    assert (done.state, drive.calls(machine)["TerminateInstances"]) == ("CANCELLED", 0)
    drive.until(lambda: all(i.state != "shutting-down" for i in drive.fleet.world.instances.values()), 30)
    restored(drive, machine, "solo")

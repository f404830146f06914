"""AWS fails for long under a repair: a breaker holds it where it is safe, and only a person lets it go on."""

from __future__ import annotations

from healthboard.repairs import brakes
from healthboard.repairs.models import Breaker
from tests.repairs.driver import person
from workers.repair import trips


def test_after_long_trouble_with_aws_the_repair_waits_for_a_person_and_then_ends_well(db, drives):
    drive = drives("solo=template:3")
    drive.hands.append(trips.look)
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.until(lambda: (r := drive.repair(machine)) and r.step == "replacement", 200, 2)
    before = drive.calls()
    drive.fleet.engine.sandbox.set_mode("off")
    drive.steps(3, 30)
    assert not Breaker.objects.exists(), "short trouble only holds"
    drive.until(lambda: Breaker.objects.filter(kind="AWS_ERRORS").exists(), 700, 55)
    drive.fleet.engine.sandbox.set_mode("ok")
    drive.steps(5, 5)
    repair = drive.repair(machine)
    assert drive.calls() == before and "Breaker open" in repair.why_waiting, drive.said()
    for row in Breaker.objects.filter(released_at=None):
        brakes.release_breaker(row.pk, person("admin"), "AWS is well again")
    repair = drive.repaired(machine, seconds=3)
    assert repair.outcome == "REPLACED" and drive.calls(machine)["TerminateInstances"] == 1
    drive.sound()

"""AWS fails for long under a repair: a breaker holds it where it is safe, and only a person lets it go on."""

from __future__ import annotations

from healthboard.repairs.models import Breaker
from tests import two
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
    new = drive.fleet.world.instances[drive.repair(machine).replacement.instance_id]
    drive.inject(new, "ECS_AGENT_DISCONNECTED")
    drive.fleet.engine.sandbox.set_mode("ok")
    drive.steps(5, 5)
    repair = drive.repair(machine)
    assert drive.calls() == before and "Breaker open" in repair.why_waiting, drive.said()
    for row in Breaker.objects.filter(released_at=None):
        two.release_breaker(row.pk, person("admin"), "AWS is well again")
    drive.until(lambda: "agent" in drive.repair(machine).why_waiting, 60, 2)
    assert drive.repair(machine).state == "RUNNING", "the time in which AWS was away is no time to start in"
    drive.mend(new, "ECS_AGENT_DISCONNECTED")
    repair = drive.repaired(machine, seconds=3)
    assert repair.outcome == "REPLACED" and drive.calls(machine)["TerminateInstances"] == 1
    drive.sound()

"""Whole repairs while AWS does its worst, as drawn from a seed: nothing is done twice, and each ends or asks."""

from __future__ import annotations

from collections import Counter

import pytest

from healthboard.repairs.models import Call, Repair
from healthboard.repairs.states import CLOSED
from healthboard.sandbox import hostile
from tests.repairs.driver import CHANGING


@pytest.mark.parametrize("seed", ["15", "16"])
def test_under_a_hostile_aws_no_repair_does_harm(db, drives, seed):
    drive = drives("train=group:2,solo=template:2")
    drive.policy(launch_timeout_s=900, drain_timeout_s=600, reboot_timeout_s=600, unkillable="auto")
    sandbox = drive.fleet.engine.sandbox
    lost, wedged = drive.machine("solo"), drive.machine("train")
    drive.inject(lost, "XID_79", 0)
    drive.inject(wedged, "XID_95", 0)
    drive.until(lambda: Repair.objects.count() == 2, 60)
    hostile.turn(sandbox, seed)
    drive.steps(24, 5)
    did = hostile.turn(sandbox, None).did
    assert sum(did.values()) > 5, did

    def settled() -> bool:
        return all(r.state in CLOSED or r.state == "ASKING" for r in Repair.objects.all())

    drive.until(settled, 600, 5)
    drive.sound()
    made = Counter((c["operation"], c["target"]) for c in log(drive))
    intended = Counter(Call.objects.values_list("operation", "target"))
    for (operation, target), count in made.items():
        assert operation == "RunInstances" or not target or count <= intended[operation, target], (
            operation,
            target,
            did,
        )
    for machine in (lost, wedged):
        repair = drive.repair(machine)
        assert repair.calls.filter(operation="RebootInstances", outcome__in=["ok", "unknown"]).count() <= 1
        assert made["TerminateInstances", machine.id] <= 2 and made["RebootInstances", machine.id] <= 1
        tokens = set(repair.calls.filter(operation="RunInstances").values_list("token", flat=True))
        launched = [i for i in drive.fleet.world.instances.values() if i.client_token in tokens and i.client_token]
        assert len([i for i in launched if i.state in ("pending", "running")]) <= 1, did


def log(drive) -> list[dict]:
    from healthboard.sandbox.status import status

    calls = status(drive.fleet.engine.sandbox, drive.fleet.url)["calls"]
    return [c for c in calls if c["operation"] in CHANGING and c["outcome"] == "ok"]

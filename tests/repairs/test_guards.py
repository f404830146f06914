"""Guards of a changing call: what was intended is committed before it, and a repeated launch is the same one."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from healthboard import aws
from healthboard.repairs.models import Call
from tests.repairs.driver import ACCOUNT, REGION
from workers.repair.steps.launch import token_for


@pytest.mark.django_db(transaction=True)
def test_every_changing_call_was_intended_and_committed_before(drives):
    drive = drives("train=group:3")
    machine = drive.machine("train")
    made: list[str] = []
    missing: list[str] = []

    def look(operation: str) -> None:
        """By a connection of its own, which sees only what is committed."""
        if not Call.objects.filter(operation=operation, answered_at=None).exists():
            missing.append(operation)
        connection.close()

    def called(model, **_) -> None:
        made.append(model.name)
        thread = threading.Thread(target=look, args=(model.name,))
        thread.start()
        thread.join(10)

    for service in ("ec2", "ecs", "autoscaling"):
        aws.client(service, account=ACCOUNT, region=REGION, changing=True).meta.events.register("before-call", called)
    drive.inject(machine, "XID_79", 0)
    drive.repaired(machine)
    assert {"UpdateContainerInstancesState", "EnterStandby", "DetachInstances", "TerminateInstances"} <= set(made)
    assert missing == []
    assert not Call.objects.filter(answered_at=None).exists()


@pytest.mark.parametrize("how", ["drop_before", "drop_after", "error_after"])
def test_a_launch_that_is_repeated_is_the_same_launch(db, drives, how):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.rules({"service": "ec2", "operation": "RunInstances", "do": how, "times": 2})
    drive.inject(machine, "XID_79", 0)
    repair = drive.repaired(machine)
    assert repair.outcome == "REPLACED"
    tokens = set(repair.calls.filter(operation="RunInstances").values_list("token", flat=True))
    assert tokens == {token_for(repair.pk, 1)} and repair.calls.filter(operation="RunInstances").count() == 3
    world = drive.fleet.world
    assert len([i for i in world.instances.values() if i.state in ("pending", "running")]) == 3
    assert len(world.instances) == 4
    drive.sound()

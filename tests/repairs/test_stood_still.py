"""A worker that stood still between the intent and the sending sends nothing: the call is stale."""

from __future__ import annotations

import pytest
from django.db import transaction

from healthboard import aws, clock
from healthboard.people.actors import POLICY
from healthboard.refusals import Held
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Repair
from tests import factories
from workers.repair import run as running


@pytest.fixture
def drive(db, drives):
    return drives("solo=template:2")


def run_of(drive) -> running.Run:
    """A claimed repair that may drain."""
    with transaction.atomic():
        row = lifecycle.open_repair(
            instance=drive.row(drive.machine("solo")), action="REBOOT", actor=POLICY, values={}, not_before=clock.now()
        )
    held = lifecycle.claim(row.pk, "host:1")
    assert lifecycle.start(held, "drain") is None
    return running.Run(held)


def drain(run: running.Run):
    request = {
        "cluster": "gpu",
        "containerInstances": [run.instance.container_arn],
        "status": "DRAINING",
    }
    return run.change("ecs", "UpdateContainerInstancesState", request)


def stands_still(monkeypatch, seconds: float, meanwhile=lambda: None) -> None:
    """As after SIGSTOP: the intent is committed, and the next thing that the worker does is `seconds` later."""
    intend, late = lifecycle.intend, [0.0]

    def slow(*args, **named):
        call = intend(*args, **named)
        late[0] = seconds
        meanwhile()
        return call

    monkeypatch.setattr(lifecycle, "intend", slow)
    monkeypatch.setattr(aws, "monotonic", lambda: aws.time.monotonic() + late[0])


def test_a_call_whose_worker_stood_still_is_not_sent(drive, monkeypatch):
    run = run_of(drive)
    stands_still(monkeypatch, running.SEND_WITHIN_S + 1)
    with pytest.raises(Held, match="not sent"):
        drain(run)
    assert not drive.calls()
    call = run.repair.calls.get()
    assert call.outcome == "not sent" and call.answered_at is not None
    assert run.calls("UpdateContainerInstancesState") == [], "it is no call that may have had an effect"


def test_a_call_is_sent_within_its_time(drive, monkeypatch):
    run = run_of(drive)
    stands_still(monkeypatch, running.SEND_WITHIN_S - 5)
    assert drain(run)[0] == "ok"
    assert sum(drive.calls().values()) == 1
    assert lifecycle.LEASE.total_seconds() > running.SEND_WITHIN_S + aws.CONNECT_TIMEOUT_S + aws.READ_TIMEOUT_S


def test_what_another_worker_has_taken_over_meanwhile_is_not_sent_either(drive, monkeypatch):
    run = run_of(drive)

    def taken_over() -> None:
        Repair.objects.update(lease_until=factories.ago(1), next_at=factories.ago(1))
        assert lifecycle.claim(run.repair.pk, "host:2")

    stands_still(monkeypatch, 300, taken_over)
    with pytest.raises(lifecycle.LostFence):
        drain(run)
    assert not drive.calls()


def test_what_a_step_writes_about_its_machine_is_not_written_once_another_worker_has_claimed(db):
    from healthboard.fleet.models import Head, NodeRequest
    from tests.cases import scene
    from workers.repair.steps import leave, reboot

    scene.acting()
    machine = scene.machine()
    Head.objects.filter(instance=machine).delete()
    Head.objects.create(instance=machine, channel="node", first_at=clock.now(), last_at=clock.now(), ended_by_us=True)
    with transaction.atomic():
        row = lifecycle.open_repair(instance=machine, action="REBOOT", actor=POLICY, values={}, not_before=clock.now())
    stale = lifecycle.claim(row.pk, "host:1")
    assert lifecycle.start(stale, "diagnose") is None
    lifecycle.free_leases("host:1")
    fresh = lifecycle.claim(row.pk, "host:2")
    for write in (lambda run: reboot._ask(run, "repair"), leave.heard_again):
        with pytest.raises(lifecycle.LostFence):
            write(running.Run(stale))
    assert not NodeRequest.objects.exists() and Head.objects.get(instance=machine).ended_by_us
    assert reboot._ask(running.Run(fresh), "repair") == NodeRequest.objects.get()
    leave.heard_again(running.Run(fresh))
    assert not Head.objects.get(instance=machine).ended_by_us

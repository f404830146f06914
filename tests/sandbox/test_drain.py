from __future__ import annotations

import math

import pytest

from tests.sandbox.conftest import Fleet
from tests.sandbox.test_ec2 import control


def live(fleet: Fleet, service: str) -> int:
    return fleet.ecs.describe_services(cluster="gpu", services=[service])["services"][0]["runningCount"]


@pytest.mark.parametrize(
    "pool, index", [("train", 0), ("train", 19), ("infer", 0), ("infer", 5), ("solo", 0), ("solo", 13)]
)
def test_every_drain_ends_within_a_minute_and_the_services_keep_their_minimum(fleet, pool, index):
    fleet.advance(30)
    one = fleet.pool(pool)[index]
    assert fleet.drain(one)["failures"] == []
    services = [s for s in fleet.world.services.values() if not s.daemon]

    def drained():
        for s in services:
            running = sum(1 for t in fleet.world.tasks.values() if t.service == s.name and t.last == "RUNNING")
            assert running >= math.ceil(s.desired * s.minimum / 100), s.name
            assert sum(1 for t in fleet.world.tasks.values() if t.service == s.name and t.last != "STOPPED") <= (
                s.desired * s.maximum // 100
            )
        return fleet.running(one) == 0

    fleet.until(drained, within=60)
    assert fleet.container(one).status == "DRAINING"
    fleet.until(lambda: all(live(fleet, s.name) == s.desired for s in services), within=20)


def test_four_of_twenty_can_drain_at_once(fleet):
    fleet.advance(10)
    four = fleet.pool("train")[:4]
    for one in four:
        fleet.drain(one)
    fleet.until(lambda: all(fleet.running(i) == 0 for i in four), within=60)
    fleet.until(lambda: live(fleet, "pretrain") == 12, within=60)


def test_a_standalone_task_is_left_alone_and_the_daemon_goes_last(fleet):
    fleet.advance(5)
    alone = next(t for t in fleet.world.tasks.values() if t.family == "evaluate" and t.last == "RUNNING")
    one = fleet.world.instances[fleet.world.containers[alone.container].instance]
    fleet.drain(one)
    while alone.last == "RUNNING":
        daemon = [t for t in fleet.world.live_tasks(alone.container) if t.service == "telemetry"]
        assert daemon and daemon[0].desired == "RUNNING"
        fleet.advance(0.5)
    assert alone.exit_code == 0
    fleet.until(lambda: fleet.running(one) == 0, within=15)


def test_a_drain_that_is_undone_brings_the_daemon_back_and_keeps_the_counts(fleet):
    one = fleet.pool("solo")[0]
    fleet.drain(one)
    fleet.until(lambda: fleet.running(one) == 0, within=40)
    fleet.drain(one, "ACTIVE")
    fleet.advance(10)
    assert [t.service for t in fleet.world.live_tasks(fleet.container(one).id)][:1] == ["telemetry"]
    assert live(fleet, "simulate") == 12


def test_with_minimum_and_maximum_both_at_100_the_drain_never_ends(fleet):
    fleet.world.services["gpu/simulate"].minimum = fleet.world.services["gpu/simulate"].maximum = 100
    one = fleet.pool("solo")[0]
    fleet.drain(one)
    fleet.advance(120)
    assert any(t.service == "simulate" for t in fleet.world.live_tasks(fleet.container(one).id))


def test_a_dead_host_stops_nothing_and_the_service_starts_its_tasks_elsewhere(fleet):
    fleet.advance(40)
    one = fleet.pool("solo")[0]
    control(fleet, "inject", instances=[one.id], code="EC2_SYSTEM_IMPAIRED")
    fleet.advance(60)
    container = fleet.container(one)
    held = fleet.world.live_tasks(container.id)
    assert not container.connected and held
    elsewhere = lambda: sum(  # noqa: E731
        1
        for t in fleet.world.tasks.values()
        if t.service == "simulate" and t.last == "RUNNING" and t.container != container.id
    )
    assert elsewhere() == 11  # ECS moves nothing before the instance is DRAINING
    fleet.drain(one)
    fleet.until(lambda: elsewhere() == 12, within=20)
    assert [t for t in fleet.world.live_tasks(container.id) if t.last == "RUNNING"] == held
    status = fleet.ec2.describe_instance_status(InstanceIds=[one.id])["InstanceStatuses"][0]
    assert status["SystemStatus"]["Status"] == status["InstanceStatus"]["Status"] == "impaired"


def test_a_dead_host_that_is_terminated_stays_registered_until_it_is_deregistered(fleet):
    one = fleet.pool("solo")[0]
    control(fleet, "inject", instances=[one.id], code="EC2_SYSTEM_IMPAIRED")
    fleet.advance(2)
    fleet.ec2.terminate_instances(InstanceIds=[one.id])
    fleet.until(lambda: one.state == "terminated", within=10)
    fleet.advance(20)
    container = fleet.container(one)
    assert container.status == "ACTIVE" and not container.connected and fleet.world.live_tasks(container.id)
    fleet.ecs.deregister_container_instance(cluster="gpu", containerInstance=container.id, force=True)
    assert not fleet.world.live_tasks(container.id)
    fleet.until(lambda: live(fleet, "simulate") == 12, within=15)


def test_a_container_that_will_not_die_stays_running_though_stop_was_ordered(fleet):
    one = fleet.pool("solo")[0]
    control(fleet, "inject", instances=[one.id], code="UNKILLABLE_TASK")
    fleet.drain(one)
    fleet.advance(60)
    stuck = [t for t in fleet.world.live_tasks(fleet.container(one).id) if t.service == "simulate"]
    assert stuck and all((t.last, t.desired) == ("RUNNING", "STOPPED") for t in stuck)
    assert fleet.container(one).connected
    elsewhere = [
        t for t in fleet.world.tasks.values() if t.service == "simulate" and t.last == "RUNNING" and t not in stuck
    ]
    assert len(elsewhere) == 12

"""Turns what has changed in the world into the events that EventBridge would bring about it."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox import queue
from healthboard.sandbox.calls import ecs_instances
from healthboard.sandbox.calls.ecs_common import cluster_arn, container_arn, task_arn
from healthboard.sandbox.ecs_health import health_status
from healthboard.sandbox.entities import Container, Task
from healthboard.sandbox.protocol.serialize import iso
from healthboard.sandbox.world import World

#: a container instance that is older than this when it is first seen was there from the start
NEW_S = 5.0


def tell(world: World) -> None:
    """Call after each tick, with the lock held. What was there when the fleet was built is no news."""
    now = world.now()
    for instance in world.instances.values():
        if instance.told != instance.state:
            news = instance.told or instance.state == "pending"
            instance.told = instance.state
            if news:
                detail = {"instance-id": instance.id, "state": instance.state}
                arn = queue.instance_arn(world, instance)
                queue.put(world, "EC2 Instance State-change Notification", "aws.ec2", detail, arn)
    for container in world.containers.values():
        _container(world, container, now)
    for task in world.tasks.values():
        said = f"{task.last}/{task.desired}"
        if task.told != said:
            news = task.told or task.last == "PENDING"
            task.told = said
            if news:
                _task(world, task)


def _container(world: World, c: Container, now: float) -> None:
    said = f"{c.status}/{c.connected}/{c.version}"
    new = now - c.registered_at < NEW_S
    if c.told != said:
        news = c.told or new
        c.told = said
        if news:
            _state_change(world, c)
    if world.instances[c.instance].faults or not c.connected or c.told_health not in ("", "OK"):
        _health_change(world, c)


def _state_change(world: World, c: Container) -> None:
    described = ecs_instances.describe(world, c)
    detail = {
        **{k: v for k, v in described.items() if v is not None and k != "tags"},
        "clusterArn": cluster_arn(world, c.cluster),
        "registeredAt": iso(c.registered_at),
        "updatedAt": iso(world.now()),
    }
    queue.put(world, "ECS Container Instance State Change", "aws.ecs", detail, container_arn(world, c))


def _health_change(world: World, c: Container) -> None:
    health = health_status(world, c)
    bad = [f"{d['type']}={d['status']}/{d.get('statusReason')}" for d in health["details"] if d["status"] != "OK"]
    said = " ".join([health["overallStatus"], *bad])
    if c.told_health == said or (not c.told_health and said == "OK"):
        return
    c.told_health = said
    detail = {
        "clusterArn": cluster_arn(world, c.cluster),
        "containerInstanceArn": container_arn(world, c),
        "capacityProviderName": c.provider,
        "ec2InstanceId": c.instance,
        "overallStatus": health["overallStatus"],
        "healthChecks": [_check(d) for d in health["details"]],
    }
    queue.put(world, "ECS Container Instance Health Change", "aws.ecs", detail, container_arn(world, c))


def _check(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: iso(row[name]) for name in ("lastUpdated", "lastStatusChange")}
    return {**row, **times, "statusReason": row.get("statusReason")}


def _task(world: World, task: Task) -> None:
    container = world.containers.get(task.container)
    detail = {
        "clusterArn": cluster_arn(world, task.cluster),
        "taskArn": task_arn(world, task),
        "containerInstanceArn": container_arn(world, container) if container else None,
        "lastStatus": task.last,
        "desiredStatus": task.desired,
        "group": task.group,
        "startedBy": task.started_by,
        "createdAt": iso(task.created_at),
        "updatedAt": iso(world.now()),
        "stopCode": task.stop_code,
        "stoppedReason": task.stop_reason,
    }
    kept = {k: v for k, v in detail.items() if v is not None}
    queue.put(world, "ECS Task State Change", "aws.ecs", kept, task_arn(world, task))

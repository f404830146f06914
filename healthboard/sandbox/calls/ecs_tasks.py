"""ECS: tasks, stopping them, protecting them."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ecs_common import (
    cluster_arn,
    cluster_of,
    container_arn,
    definition_arn,
    find_container,
    find_service,
    find_task,
    invalid,
    limited,
    listing,
    missing,
    task_arn,
)  # fmt: skip
from healthboard.sandbox.calls.paging import ecs_tags
from healthboard.sandbox.entities import Task
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.ticks.tasks import order_stop
from healthboard.sandbox.world import World


def list_tasks(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """By default only tasks that shall run, as ECS does: desiredStatus=STOPPED shows the others."""
    cluster = cluster_of(world, p)
    desired = p.get("desiredStatus") or "RUNNING"
    rows = [t for t in world.tasks.values() if t.cluster == cluster.id and t.desired == desired]
    if p.get("containerInstance"):
        container = find_container(world, cluster, p["containerInstance"])
        if container is None:
            raise invalid("Container instance not found.")
        rows = [t for t in rows if t.container == container.id]
    if p.get("serviceName"):
        service = find_service(world, cluster, p["serviceName"])
        if service is None:
            raise AwsError("ServiceNotFoundException", "Service not found.")
        rows = [t for t in rows if t.service == service.name]
    if p.get("family"):
        rows = [t for t in rows if t.family == p["family"]]
    if p.get("startedBy"):
        rows = [t for t in rows if t.started_by == p["startedBy"]]
    if p.get("launchType") not in (None, "EC2"):
        rows = []
    arns, token = listing(p, [task_arn(world, t) for t in rows])
    return {"taskArns": arns, "nextToken": token}


def describe_tasks(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    found, failures = [], []
    for ref in limited(p["tasks"], 100, "Tasks"):
        task = find_task(world, cluster, ref)
        if task is None:
            failures.append(missing(world, cluster, "task", ref))
        else:
            found.append(describe(world, task, "TAGS" in (p.get("include") or ())))
    return {"tasks": found, "failures": failures}


def describe(world: World, t: Task, with_tags: bool = False) -> dict[str, Any]:
    container = world.containers.get(t.container)
    instance = world.instances[container.instance] if container else None
    arn = task_arn(world, t)
    box = {
        "containerArn": world.arn("ecs", f"container/{t.cluster}/{t.id}/{world.seeded('box', t.id)[:32]}"),
        "taskArn": arn,
        "name": t.family,
        "lastStatus": t.last,
        "exitCode": t.exit_code,
        "reason": t.stop_reason if t.last == "STOPPED" and t.exit_code is None else None,
        "gpuIds": list(t.gpus),
        "healthStatus": "UNKNOWN",
    }
    return {
        "taskArn": arn,
        "clusterArn": cluster_arn(world, t.cluster),
        "containerInstanceArn": container_arn(world, container) if container else None,
        "capacityProviderName": container.provider if container else None,
        "availabilityZone": instance.zone if instance else None,
        "taskDefinitionArn": definition_arn(world, t.family, t.revision),
        "containers": [box],
        "lastStatus": t.last,
        "desiredStatus": t.desired,
        "healthStatus": "UNKNOWN",
        "group": t.group,
        "startedBy": t.started_by,
        "launchType": "EC2",
        "connectivity": "CONNECTED" if container and container.connected else "DISCONNECTED",
        "createdAt": t.created_at,
        "startedAt": t.started_at,
        "stoppingAt": t.stopping_at,
        "stoppedAt": t.stopped_at,
        "stopCode": t.stop_code,
        "stoppedReason": t.stop_reason,
        "version": 3,
        "cpu": "1024",
        "memory": "4096",
        "tags": ecs_tags(t.tags) if with_tags else [],
    }


def stop_task(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    task = find_task(world, cluster, p["task"])
    if task is None:
        raise invalid("The referenced task was not found.")
    order_stop(world, task, "UserInitiated", p.get("reason") or "Task stopped by user")
    return {"task": describe(world, task)}


def get_task_protection(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    rows, failures = _protected(world, cluster, p.get("tasks"))
    return {"protectedTasks": [_protection(world, t) for t in rows], "failures": failures}


def _protected(world: World, cluster: Any, refs: list[str] | None) -> tuple[list[Task], list[dict[str, str]]]:
    """Service tasks only: a standalone one is a failure, and so is one that is not there."""
    refs = limited(refs or [], 100, "Tasks")
    rows, failures = [], []
    for ref in refs:
        task = find_task(world, cluster, ref)
        if task is None:
            failures.append(missing(world, cluster, "task", ref))
        elif task.service is None:
            failures.append(missing(world, cluster, "task", ref, "TASK_NOT_VALID"))
        else:
            rows.append(task)
    return rows, failures


def _protection(world: World, t: Task) -> dict[str, Any]:
    on = t.protected_until is not None and t.protected_until > world.now()
    return {
        "taskArn": task_arn(world, t),
        "protectionEnabled": on,
        "expirationDate": t.protected_until if on else None,
    }


def update_task_protection(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """The times are the workload's own, so they are not sped up."""
    cluster = cluster_of(world, p)
    minutes = p.get("expiresInMinutes") or 120
    if not 1 <= minutes <= 2880:
        raise invalid("expiresInMinutes must be between 1 and 2880.")
    limited(p["tasks"], 10, "Tasks")
    rows, failures = _protected(world, cluster, p["tasks"])
    for task in rows:
        task.protected_until = world.now() + 60 * minutes if p["protectionEnabled"] else None
    return {"protectedTasks": [_protection(world, t) for t in rows], "failures": failures}

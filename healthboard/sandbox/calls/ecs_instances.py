"""ECS: container instances, their health, draining and deregistering."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ecs_common import (
    cluster_of,
    container_arn,
    find_container,
    invalid,
    limited,
    listing,
    missing,
)  # fmt: skip
from healthboard.sandbox.calls.paging import ecs_tags
from healthboard.sandbox.ecs_health import health_status
from healthboard.sandbox.entities import Container
from healthboard.sandbox.hardware import TYPES
from healthboard.sandbox.ticks.agents import deregister
from healthboard.sandbox.world import World

LISTED = ("ACTIVE", "DRAINING", "REGISTERING", "DEREGISTERING", "REGISTRATION_FAILED")


def list_container_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    status = p.get("status")
    if status and status not in LISTED:
        raise invalid(f"Invalid container instance status: {status}")
    rows = [c for c in world.containers.values() if c.cluster == cluster.id and c.inactive_at is None]
    if status:
        rows = [c for c in rows if c.status == status]
    if p.get("filter"):
        rows = [c for c in rows if _matches(c, p["filter"])]
    arns, token = listing(p, [container_arn(world, c) for c in rows])
    return {"containerInstanceArns": arns, "nextToken": token}


def _matches(c: Container, text: str) -> bool:
    """The few cluster query expressions that clients really use."""
    left, _, right = text.partition("==")
    left, right = left.strip(), right.strip()
    if left.startswith("attribute:"):
        return c.attributes.get(left[10:]) == right
    if left == "ec2InstanceId":
        return c.instance == right
    if left == "agentConnected":
        return str(c.connected).lower() == right.lower()
    raise invalid(f"Invalid filter expression: {text}")


def describe_container_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    include = p.get("include") or ()
    found, failures = [], []
    for ref in limited(p["containerInstances"], 100, "Container instances"):
        container = find_container(world, cluster, ref)
        if container is None:
            failures.append(missing(world, cluster, "container-instance", ref))
        else:
            found.append(describe(world, container, include))
    return {"containerInstances": found, "failures": failures}


def describe(world: World, c: Container, include: Any = ()) -> dict[str, Any]:
    instance = world.instances[c.instance]
    spec = TYPES[instance.type]
    tasks = world.live_tasks(c.id)
    used = {gpu for t in tasks for gpu in t.gpus}

    def resources(gpus: list[str], taken: int) -> list[dict[str, Any]]:
        return [
            {"name": "CPU", "type": "INTEGER", "integerValue": spec.vcpus * 1024 - 1024 * taken},
            {"name": "MEMORY", "type": "INTEGER", "integerValue": spec.memory - 8192 - 4096 * taken},
            {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpus},
        ]

    return {
        "containerInstanceArn": container_arn(world, c),
        "ec2InstanceId": c.instance,
        "capacityProviderName": c.provider,
        "version": c.version,
        "versionInfo": {"agentVersion": "1.98.2", "agentHash": "54ca4f61", "dockerVersion": "DockerVersion: 25.0.13"},
        "registeredResources": resources(list(c.gpus), 0),
        "remainingResources": resources([g for g in c.gpus if g not in used], len(tasks)),
        "status": c.status,
        "statusReason": c.status_reason or None,
        "agentConnected": c.connected,
        "runningTasksCount": sum(1 for t in tasks if t.last != "PENDING"),
        "pendingTasksCount": sum(1 for t in tasks if t.last == "PENDING"),
        "registeredAt": c.registered_at,
        "attributes": [{"name": k, "value": v} for k, v in c.attributes.items()],
        "tags": ecs_tags(c.tags) if "TAGS" in include else [],
        "healthStatus": health_status(world, c) if "CONTAINER_INSTANCE_HEALTH" in include else None,
    }


def update_container_instances_state(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    wanted = p["status"]
    if wanted not in ("ACTIVE", "DRAINING"):
        raise invalid("Container instance status must be one of [ACTIVE, DRAINING].")
    found, failures = [], []
    for ref in limited(p["containerInstances"], 10, "Container instances"):
        container = find_container(world, cluster, ref)
        if container is None:
            failures.append(missing(world, cluster, "container-instance", ref))
        elif container.inactive_at is not None:
            failures.append(missing(world, cluster, "container-instance", ref, "INACTIVE"))
        else:
            if container.status != wanted:
                container.status = wanted
                container.version += 1
            found.append(describe(world, container))
    return {"containerInstances": found, "failures": failures}


def deregister_container_instance(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    container = find_container(world, cluster, p["containerInstance"])
    if container is None or container.inactive_at is not None:
        raise invalid("The referenced container instance was not found.")
    if world.live_tasks(container.id) and not p.get("force"):
        raise invalid("Found running tasks on the instance.")
    deregister(world, container, "Container instance was deregistered forcefully by user.")
    return {"containerInstance": describe(world, container)}

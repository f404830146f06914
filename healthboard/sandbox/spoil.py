"""How an answer is spoiled: half of it fails with HTTP 200, fields are missing, or it tells what was before a change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from healthboard.sandbox.entities import Entity
from healthboard.sandbox.world import Sandbox, World

#: ECS's calls whose answer may be HTTP 200 and hold failures: the list asked for -> the list in the answer
LISTS = {
    "UpdateContainerInstancesState": ("containerInstances", "containerInstances"),
    "DescribeContainerInstances": ("containerInstances", "containerInstances"),
    "DescribeTasks": ("tasks", "tasks"),
    "DescribeServices": ("services", "services"),
    "DescribeClusters": ("clusters", "clusters"),
    "DescribeCapacityProviders": ("capacityProviders", "capacityProviders"),
    "GetTaskProtection": ("tasks", "protectedTasks"),
    "UpdateTaskProtection": ("tasks", "protectedTasks"),
}
#: what an answer may come without: fields that AWS calls optional
OPTIONAL = {
    "DescribeInstances": ("Tags", "Placement", "SubnetId", "State"),
    "DescribeInstanceStatus": ("SystemStatus", "InstanceStatus", "Events"),
    "DescribeAutoScalingGroups": ("SuspendedProcesses", "Instances", "Tags"),
    "DescribeAutoScalingInstances": ("LifecycleState",),
    "DescribeScalingActivities": ("StatusMessage", "StatusCode"),
    "DescribeContainerInstances": (
        "agentConnected", "runningTasksCount", "pendingTasksCount", "status", "healthStatus", "registeredResources",
    ),
    "DescribeTasks": ("group", "stoppingAt", "desiredStatus", "containerInstanceArn"),
    "DescribeServices": ("runningCount", "desiredCount"),
    "DescribeSpotInstanceRequests": ("Type", "State"),
    "DescribeTaskDefinition": ("containerDefinitions",),
}  # fmt: skip


def split(operation: str, params: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The request for the first half of what was asked (None: nothing is left of it), and what is said of the rest."""
    asked, told = LISTS[operation]
    refs = list(params.get(asked) or ())
    kept, failing = refs[: len(refs) // 2], refs[len(refs) // 2 :]
    rest = {
        told: [],
        "failures": [{"arn": str(ref), "reason": "ServerException", "detail": "made to fail"} for ref in failing],
    }
    return ({**params, asked: kept} if kept else None), rest


def joined(result: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    return {**rest, **result, "failures": [*result.get("failures", ()), *rest["failures"]]}


def without(value: Any, names: tuple[str, ...]) -> Any:
    """The same answer without those fields, at any depth."""
    if isinstance(value, dict):
        return {k: without(v, names) for k, v in value.items() if k not in names}
    return [without(v, names) for v in value] if isinstance(value, list | tuple) else value


@dataclass(slots=True)
class Past:
    """What reading calls are still told, until it is over: entities as they were, and those that were not there."""

    world: World
    until: float
    was: dict[Entity, dict[str, Any]] = field(default_factory=dict)
    hidden: list[Entity] = field(default_factory=list)
    service: str = ""  # the only one that still shows it; empty: all


def photograph(world: World, targets: list[str], group: str, until: float) -> Past:
    """Call before a change: the instances, their registration and their group as they are now."""
    past = Past(world, until)
    for one in targets:
        found = (world.instances.get(one), world.container_of.get(one), world.group_of(one))
        past.was.update({entity: entity.body() for entity in found if entity is not None})
    if group in world.groups:
        past.was[world.groups[group]] = world.groups[group].body()
    return past


@contextmanager
def as_it_was(sandbox: Sandbox, world: World, service: str) -> Iterator[None]:
    """Within, the world's entities are those that a lagging service still shows. Call with the lock held; read only."""
    sandbox.pasts = [p for p in sandbox.pasts if p.until > sandbox.now()]
    here = [p for p in sandbox.pasts if p.world is world and p.service in ("", service)]
    shown: dict[Entity, dict[str, Any]] = {}
    for past in here:  # the oldest first: what it shows was before all later ones
        for entity, body in past.was.items():
            shown.setdefault(entity, body)
    now = {entity: entity.body() for entity in shown}
    hidden = [e for past in here for e in past.hidden if e.id in world._tables[e.kind]]
    for entity, body in shown.items():
        entity.__dict__.update(body)  # not by assignment: nothing is to be written
    for entity in hidden:
        del world._tables[entity.kind][entity.id]
    try:
        yield
    finally:
        for entity, body in now.items():
            entity.__dict__.update(body)
        for entity in hidden:
            world._tables[entity.kind][entity.id] = entity

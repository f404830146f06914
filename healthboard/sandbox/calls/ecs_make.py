"""ECS: making and deleting clusters, task definitions and services."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ecs_common import cluster_arn, cluster_of, definition_arn, find_service, invalid
from healthboard.sandbox.calls.ecs_read import _service as describe_service
from healthboard.sandbox.entities import Cluster, Definition, Service
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.ticks.tasks import order_stop
from healthboard.sandbox.world import World

#: what is kept of a container's definition
KEPT = ("name", "image", "essential", "stopTimeout", "dependsOn")


def create_cluster(world: World, p: dict[str, Any]) -> dict[str, Any]:
    name = p.get("clusterName") or "default"
    found = world.clusters.get(name)
    if found is None:
        found = world.add(Cluster(id=name, tags={t["key"]: t.get("value", "") for t in p.get("tags") or ()}))
    return {"cluster": {"clusterName": name, "clusterArn": cluster_arn(world, name), "status": "ACTIVE"}}


def delete_cluster(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    if any(s.cluster == cluster.id for s in world.services.values()):
        raise AwsError("ClusterContainsServicesException", "The Cluster cannot be deleted while Services are active.")
    if any(c.cluster == cluster.id and c.inactive_at is None for c in world.containers.values()):
        raise AwsError(
            "ClusterContainsContainerInstancesException",
            "The Cluster cannot be deleted while Container Instances are active or draining.",
        )
    if any(t.cluster == cluster.id and t.last != "STOPPED" for t in world.tasks.values()):
        raise AwsError("ClusterContainsTasksException", "The Cluster cannot be deleted while Tasks are active.")
    world.remove(cluster)
    arn = cluster_arn(world, cluster.id)
    return {"cluster": {"clusterName": cluster.id, "clusterArn": arn, "status": "INACTIVE"}}


def register_task_definition(world: World, p: dict[str, Any]) -> dict[str, Any]:
    family = p["family"]
    needs = [r for box in p["containerDefinitions"] for r in box.get("resourceRequirements") or ()]
    made = world.add(
        Definition(
            id=f"{family}:{world.count(f'definition/{family}')}", family=family,
            gpus=sum(int(r["value"]) for r in needs if r.get("type") == "GPU"),
            containers=[{k: box[k] for k in KEPT if box.get(k) is not None} for box in p["containerDefinitions"]],
        )
    )  # fmt: skip
    return {"taskDefinition": _definition(world, made)}


def deregister_task_definition(world: World, p: dict[str, Any]) -> dict[str, Any]:
    found = world.definitions.get(p["taskDefinition"].rpartition("/")[2])
    if found is None:
        raise AwsError("ClientException", "The specified task definition does not exist.")
    found.active = False
    return {"taskDefinition": _definition(world, found)}


def describe_task_definition(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """Revisions that were deregistered too. What runs without one that was registered here has one container with no
    stop time-out of its own."""
    named = p["taskDefinition"].rpartition("/")[2]
    found = world.definitions.get(named)
    if found is None and ":" not in named:
        mine = [d for d in world.definitions.values() if d.active and d.family == named]
        found = max(mine, key=lambda d: int(d.id.rpartition(":")[2]), default=None)
    if found is None:
        uses = {(r.family, r.revision) for r in (*world.services.values(), *world.tasks.values())}
        family, _, revision = named.rpartition(":")
        if (family, revision) not in {(f, str(r)) for f, r in uses}:
            raise AwsError("ClientException", "Unable to describe task definition.")
        found = Definition(id=named, family=family, containers=[{"name": family, "essential": True}])
    return {"taskDefinition": {**_definition(world, found), "containerDefinitions": found.containers}}


def list_task_definitions(world: World, p: dict[str, Any]) -> dict[str, Any]:
    wanted = p.get("familyPrefix")
    rows = [d for d in world.definitions.values() if d.active and wanted in (None, d.family)]
    return {"taskDefinitionArns": [_definition(world, d)["taskDefinitionArn"] for d in rows]}


def _definition(world: World, d: Definition) -> dict[str, Any]:
    revision = int(d.id.rpartition(":")[2])
    return {
        "taskDefinitionArn": definition_arn(world, d.family, revision), "family": d.family, "revision": revision,
        "status": "ACTIVE" if d.active else "INACTIVE",
    }  # fmt: skip


def create_service(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    name = p["serviceName"]
    if find_service(world, cluster, name) is not None:
        raise invalid("Creation of service was not idempotent.")
    definition = world.definitions.get(p["taskDefinition"].rpartition("/")[2])
    if definition is None or not definition.active:
        raise AwsError("ClientException", "TaskDefinition not found.")
    family, _, revision = definition.id.rpartition(":")
    limits = p.get("deploymentConfiguration") or {}
    service = world.add(
        Service(
            id=f"{cluster.id}/{name}", name=name, cluster=cluster.id, family=family, revision=int(revision),
            desired=p.get("desiredCount", 0), gpus=definition.gpus, pool=None, created_at=world.now(),
            minimum=limits.get("minimumHealthyPercent", 100), maximum=limits.get("maximumPercent", 200),
            daemon=p.get("schedulingStrategy") == "DAEMON",
        )
    )  # fmt: skip
    return {"service": describe_service(world, service, False)}


def delete_service(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    service = find_service(world, cluster, p["service"])
    if service is None:
        raise AwsError("ServiceNotFoundException", "Service not found.")
    if service.desired and not service.daemon and not p.get("force"):
        raise invalid("The service cannot be stopped while it is scaled above 0.")
    told = describe_service(world, service, False)
    for task in world.tasks.values():
        if task.service == service.name and task.cluster == cluster.id:
            order_stop(world, task, "ServiceSchedulerInitiated", "Service was deleted")
    world.remove(service)
    return {"service": {**told, "status": "DRAINING"}}

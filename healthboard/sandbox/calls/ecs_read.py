"""ECS: clusters, services, capacity providers."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ecs_common import (
    cluster_arn,
    cluster_of,
    definition_arn,
    find_service,
    limited,
    listing,
    missing,
    service_arn,
)  # fmt: skip
from healthboard.sandbox.calls.paging import ecs_tags
from healthboard.sandbox.entities import Provider, Service
from healthboard.sandbox.world import World


def list_clusters(world: World, p: dict[str, Any]) -> dict[str, Any]:
    arns, token = listing(p, [cluster_arn(world, name) for name in world.clusters])
    return {"clusterArns": arns, "nextToken": token}


def describe_clusters(world: World, p: dict[str, Any]) -> dict[str, Any]:
    found, failures = [], []
    for ref in p.get("clusters") or ["default"]:
        cluster = world.clusters.get(ref.rpartition("/")[2])
        if cluster is None:
            failures.append({"arn": ref if ref.startswith("arn:") else cluster_arn(world, ref), "reason": "MISSING"})
            continue
        tasks = [t for t in world.tasks.values() if t.cluster == cluster.id]
        found.append(
            {
                "clusterArn": cluster_arn(world, cluster.id),
                "clusterName": cluster.id,
                "status": "ACTIVE",
                "registeredContainerInstancesCount": sum(
                    1 for c in world.containers.values() if c.cluster == cluster.id and c.inactive_at is None
                ),
                "runningTasksCount": sum(1 for t in tasks if t.last == "RUNNING"),
                "pendingTasksCount": sum(1 for t in tasks if t.last == "PENDING"),
                "activeServicesCount": sum(1 for s in world.services.values() if s.cluster == cluster.id),
                "capacityProviders": list(cluster.providers),
                "defaultCapacityProviderStrategy": [],
                "tags": ecs_tags(cluster.tags) if "TAGS" in (p.get("include") or ()) else [],
            }
        )
    return {"clusters": found, "failures": failures}


def list_services(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    rows = [s for s in world.services.values() if s.cluster == cluster.id]
    if p.get("schedulingStrategy"):
        rows = [s for s in rows if ("DAEMON" if s.daemon else "REPLICA") == p["schedulingStrategy"]]
    arns, token = listing(p, [service_arn(world, s) for s in rows], default=10)
    return {"serviceArns": arns, "nextToken": token}


def describe_services(world: World, p: dict[str, Any]) -> dict[str, Any]:
    cluster = cluster_of(world, p)
    found, failures = [], []
    for ref in limited(p["services"], 10, "Services"):
        service = find_service(world, cluster, ref)
        if service is None:
            failures.append(missing(world, cluster, "service", ref))
        else:
            found.append(_service(world, service, "TAGS" in (p.get("include") or ())))
    return {"services": found, "failures": failures}


def _service(world: World, s: Service, with_tags: bool) -> dict[str, Any]:
    tasks = [t for t in world.tasks.values() if t.service == s.name and t.cluster == s.cluster]
    running = sum(1 for t in tasks if t.last == "RUNNING")
    pending = sum(1 for t in tasks if t.last == "PENDING")
    definition = definition_arn(world, s.family, s.revision)
    strategy = [{"capacityProvider": s.pool, "weight": 1, "base": 0}] if s.pool in world.providers else None
    deployment = {
        "id": "ecs-svc/" + str(int(world.seeded("deployment", s.name)[:15], 16)),
        "status": "PRIMARY",
        "taskDefinition": definition,
        "desiredCount": s.desired,
        "runningCount": running,
        "pendingCount": pending,
        "failedTasks": 0,
        "createdAt": s.created_at,
        "updatedAt": s.created_at,
        "rolloutState": "COMPLETED",
    }
    return {
        "serviceArn": service_arn(world, s),
        "serviceName": s.name,
        "clusterArn": cluster_arn(world, s.cluster),
        "status": "ACTIVE",
        "desiredCount": s.desired,
        "runningCount": running,
        "pendingCount": pending,
        "launchType": None if strategy else "EC2",
        "capacityProviderStrategy": strategy,
        "taskDefinition": definition,
        "deploymentConfiguration": {"minimumHealthyPercent": s.minimum, "maximumPercent": s.maximum},
        "deployments": [deployment],
        "events": s.messages[:10],
        "createdAt": s.created_at,
        "placementConstraints": [{"type": "memberOf", "expression": f"attribute:pool == {s.pool}"}] if s.pool else [],
        "placementStrategy": [] if s.daemon else [{"type": "spread", "field": "instanceId"}],
        "schedulingStrategy": "DAEMON" if s.daemon else "REPLICA",
        "deploymentController": {"type": "ECS"},
        "loadBalancers": [],
        "tags": ecs_tags(s.tags) if with_tags else None,
    }


def describe_capacity_providers(world: World, p: dict[str, Any]) -> dict[str, Any]:
    names = p.get("capacityProviders")
    rows, failures = list(world.providers.values()), []
    if p.get("cluster"):
        cluster = cluster_of(world, p)
        rows = [r for r in rows if r.cluster == cluster.id]
    if names:
        wanted = [n.rpartition("/")[2] for n in names]
        failures = [
            {"arn": world.arn("ecs", f"capacity-provider/{n}"), "reason": "MISSING"}
            for n in wanted
            if n not in world.providers
        ]
        rows = [r for r in rows if r.id in wanted]
    ids, token = listing(p, [r.id for r in rows], default=10)
    tags = "TAGS" in (p.get("include") or ())
    return {
        "capacityProviders": [_provider(world, world.providers[i], tags) for i in ids],
        "failures": failures,
        "nextToken": token,
    }


def _provider(world: World, r: Provider, tags: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "capacityProviderArn": world.arn("ecs", f"capacity-provider/{r.id}"),
        "name": r.id,
        "status": "ACTIVE",
        "tags": ecs_tags(r.tags) if tags else [],
    }
    if r.managed:
        role = f"arn:aws:iam::{world.account}:role/ecsInfrastructureRole"
        profile = f"arn:aws:iam::{world.account}:instance-profile/ecsInstanceRole"
        out["type"] = "MANAGED_INSTANCES"
        out["cluster"] = cluster_arn(world, r.cluster)
        out["managedInstancesProvider"] = {
            "infrastructureRoleArn": role,
            "instanceLaunchTemplate": {"ec2InstanceProfileArn": profile},
            "propagateTags": "NONE",
            "autoRepairConfiguration": {"actionsStatus": r.auto_repair},
        }
    else:
        group = world.groups.get(r.group or "")
        out["type"] = "EC2_AUTOSCALING"
        out["autoScalingGroupProvider"] = {
            "autoScalingGroupArn": group_arn(world, group.id) if group else "",
            "managedScaling": {"status": "DISABLED", "targetCapacity": 100},
            "managedTerminationProtection": "DISABLED",
            "managedDraining": "DISABLED",
        }
    return out


def group_arn(world: World, name: str) -> str:
    return world.arn("autoscaling", f"autoScalingGroup:{world.seeded('group', name)[:36]}:autoScalingGroupName/{name}")

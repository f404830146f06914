"""ECS: names and ARNs, and what most calls check first."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.paging import page
from healthboard.sandbox.entities import Cluster, Container, Service, Task
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World


def invalid(message: str) -> AwsError:
    return AwsError("InvalidParameterException", message)


def cluster_of(world: World, p: dict[str, Any]) -> Cluster:
    name = (p.get("cluster") or "default").rpartition("/")[2]
    cluster = world.clusters.get(name)
    if cluster is None:
        raise AwsError("ClusterNotFoundException", "Cluster not found.")
    return cluster


def cluster_arn(world: World, name: str) -> str:
    return world.arn("ecs", f"cluster/{name}")


def container_arn(world: World, c: Container) -> str:
    return world.arn("ecs", f"container-instance/{c.cluster}/{c.id}")


def task_arn(world: World, t: Task) -> str:
    return world.arn("ecs", f"task/{t.cluster}/{t.id}")


def service_arn(world: World, s: Service) -> str:
    return world.arn("ecs", f"service/{s.cluster}/{s.name}")


def definition_arn(world: World, family: str, revision: int) -> str:
    return world.arn("ecs", f"task-definition/{family}:{revision}")


def find_container(world: World, cluster: Cluster, ref: str) -> Container | None:
    found = world.containers.get(ref.rpartition("/")[2])
    return found if found is not None and found.cluster == cluster.id else None


def find_task(world: World, cluster: Cluster, ref: str) -> Task | None:
    found = world.tasks.get(ref.rpartition("/")[2])
    return found if found is not None and found.cluster == cluster.id else None


def find_service(world: World, cluster: Cluster, ref: str) -> Service | None:
    return world.services.get(f"{cluster.id}/{ref.rpartition('/')[2]}")


def missing(world: World, cluster: Cluster, what: str, ref: str, reason: str = "MISSING") -> dict[str, str]:
    arn = ref if ref.startswith("arn:") else world.arn("ecs", f"{what}/{cluster.id}/{ref}")
    return {"arn": arn, "reason": reason}


def limited(refs: list[str], limit: int, what: str) -> list[str]:
    if not refs:
        raise invalid(f"{what} cannot be empty.")
    if len(refs) > limit:
        raise invalid(f"{what} can have at most {limit} items.")
    return refs


def listing(p: dict[str, Any], arns: list[str], default: int = 100, high: int = 100) -> tuple[list[str], str | None]:
    size = p.get("maxResults") or default
    if not 1 <= size <= high:
        raise invalid(f"maxResults must be between 1 and {high}.")
    return page(arns, p.get("nextToken"), size, invalid("Invalid token."))

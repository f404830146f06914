"""ECS: tags, and starting a standalone task."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ecs_common import cluster_of, invalid
from healthboard.sandbox.calls.ecs_tasks import describe
from healthboard.sandbox.calls.paging import ecs_tags
from healthboard.sandbox.ticks.place import candidates, start_task
from healthboard.sandbox.world import World


def _tagged(world: World, arn: str) -> Any:
    kind, _, rest = arn.partition(":")[2].rpartition(":")[2].partition("/")
    tables: dict[str, Any] = {
        "cluster": world.clusters,
        "container-instance": world.containers,
        "task": world.tasks,
        "service": world.services,
        "capacity-provider": world.providers,
    }
    key = rest if kind in ("service", "cluster") else rest.rpartition("/")[2]
    found = tables.get(kind, {}).get(key)
    if found is None:
        raise invalid("The specified resource was not found.")
    return found


def tag_resource(world: World, p: dict[str, Any]) -> dict[str, Any]:
    entity = _tagged(world, p["resourceArn"])
    entity.tags = {**entity.tags, **{t["key"]: t.get("value", "") for t in p["tags"]}}
    return {}


def untag_resource(world: World, p: dict[str, Any]) -> dict[str, Any]:
    entity = _tagged(world, p["resourceArn"])
    entity.tags = {k: v for k, v in entity.tags.items() if k not in p["tagKeys"]}
    return {}


def list_tags_for_resource(world: World, p: dict[str, Any]) -> dict[str, Any]:
    return {"tags": ecs_tags(_tagged(world, p["resourceArn"]).tags)}


def run_task(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """Standalone tasks. Where no task definition was registered, for demonstrations: two GPUs unless overridden."""
    cluster = cluster_of(world, p)
    named = p["taskDefinition"].rpartition("/")[2]
    family = named.partition(":")[0]
    known = world.definitions.get(named)
    gpus = known.gpus if known else _gpus(p)
    pool = next((s["capacityProvider"] for s in p.get("capacityProviderStrategy") or ()), None)
    revision = int(known.id.rpartition(":")[2]) if known else 3
    made, failures = [], []
    for _ in range(p.get("count") or 1):
        options = candidates(world, cluster.id, pool, gpus, pack=True)
        if not options:
            failures.append({"arn": family, "reason": "RESOURCE:GPU"})
            continue
        made.append(
            start_task(
                world, options[0], family=family, started_by=p.get("startedBy") or "", gpus=gpus, revision=revision
            )
        )
    return {"tasks": [describe(world, t) for t in made], "failures": failures}


def _gpus(p: dict[str, Any]) -> int:
    for box in (p.get("overrides") or {}).get("containerOverrides") or ():
        for need in box.get("resourceRequirements") or ():
            if need.get("type") == "GPU":
                return int(need["value"])
    return 2

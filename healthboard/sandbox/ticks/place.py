"""Placing tasks by free GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict

from healthboard.sandbox.entities import Container, Service, Task
from healthboard.sandbox.world import World

START_S = 20


def used_gpus(world: World) -> dict[str, set[str]]:
    """Container instance -> UUIDs held by tasks that are not stopped."""
    used: dict[str, set[str]] = defaultdict(set)
    for task in world.tasks.values():
        if task.last != "STOPPED":
            used[task.container].update(task.gpus)
    return used


def free_gpus(world: World, container: Container) -> list[str]:
    used = {gpu for task in world.live_tasks(container.id) for gpu in task.gpus}
    return [gpu for gpu in container.gpus if gpu not in used]


def candidates(
    world: World, cluster: str, pool: str | None, gpus: int, service: str | None = None, *, pack: bool = False
) -> list[Container]:
    """Connected ACTIVE instances with room, best first: spread over instances and zones, or packed."""
    used = used_gpus(world)
    mine = Counter(t.container for t in world.tasks.values() if t.service == service and t.last != "STOPPED")
    rows = []
    for container in world.containers.values():
        if container.cluster != cluster or container.status != "ACTIVE" or not container.connected:
            continue
        instance = world.instances[container.instance]
        if pool is not None and instance.pool != pool:
            continue
        free = len(container.gpus) - len(used[container.id] & set(container.gpus))
        if free < gpus:
            continue
        key = (free, instance.name) if pack else (mine[container.id], -free, instance.name)
        rows.append((key, container))
    # packed tasks gather on the last names, so that most instances stay free of them
    if pack:
        return [c for _, c in sorted(rows, key=lambda r: (r[0][0], _reverse(r[0][1])))]
    return [c for _, c in sorted(rows, key=lambda r: r[0])]


def _reverse(name: str) -> tuple[int, ...]:
    return tuple(-ord(letter) for letter in name)


def start_task(
    world: World,
    container: Container,
    *,
    service: Service | None = None,
    family: str = "",
    started_by: str = "",
    gpus: int = 0,
    ends_at: float | None = None,
    revision: int = 3,
) -> Task:
    """A PENDING task on `container`; the caller has made sure that there is room."""
    if service:
        family, gpus = service.family, service.gpus
        started_by = "ecs-svc/" + str(int(world.seeded("deployment", service.name)[:15], 16))
    return world.add(
        Task(
            id=world.new_hex("task", 32),
            cluster=container.cluster,
            container=container.id,
            family=family,
            revision=service.revision if service else revision,
            group=f"service:{service.name}" if service else f"family:{family}",
            started_by=started_by,
            gpus=free_gpus(world, container)[:gpus],
            created_at=world.now(),
            service=service.name if service else None,
            until=world.after(START_S * (0.6 + 0.8 * world.rng.random())),
            ends_at=ends_at,
            tags={"healthboard:team": "research"} if not service else dict(service.tags),
        )
    )

"""ECS's service scheduler: desired counts, drains under minimum and maximum, daemons.

ECS moves nothing off a host whose agent is away until that instance is DRAINING; then it starts replacements elsewhere,
up to maximumPercent, and the old tasks stay RUNNING.
"""

from __future__ import annotations

import math
from collections import defaultdict

from healthboard.sandbox.entities import Container, Service, Task
from healthboard.sandbox.ticks.place import candidates, start_task
from healthboard.sandbox.ticks.tasks import order_stop
from healthboard.sandbox.world import World

DRAIN = ("ServiceSchedulerInitiated", "Container instance is in DRAINING state")
SCALE = ("ServiceSchedulerInitiated", "Scaling activity initiated by (deployment)")


def tick(world: World) -> None:
    by_service: dict[str, list[Task]] = defaultdict(list)
    busy: dict[str, int] = defaultdict(int)  # tasks per container instance, daemons apart
    daemons = {s.name for s in world.services.values() if s.daemon}
    for task in world.tasks.values():
        if task.last == "STOPPED":
            continue
        if task.service:
            by_service[task.service].append(task)
        if task.service not in daemons:
            busy[task.container] += 1
    for service in world.services.values():
        if service.daemon:
            _daemon(world, service, by_service[service.name], busy)
        else:
            _replicas(world, service, by_service[service.name])


def _container(world: World, task: Task) -> Container | None:
    return world.containers.get(task.container)


def _draining(world: World, task: Task) -> bool:
    container = _container(world, task)
    return container is None or container.status != "ACTIVE"


def _replicas(world: World, service: Service, live: list[Task]) -> None:
    wanted = [t for t in live if t.desired == "RUNNING"]
    leaving = [t for t in wanted if _draining(world, t)]
    staying = [t for t in wanted if not _draining(world, t)]
    if not leaving and len(staying) == service.desired:
        return
    for task in [t for t in leaving if t.last == "PENDING"]:
        order_stop(world, task, *DRAIN)
        leaving.remove(task)
        live = [t for t in live if t is not task]
    upper = math.floor(service.desired * service.maximum / 100)
    lower = math.ceil(service.desired * service.minimum / 100)
    for _ in range(min(service.desired - len(staying), upper - len(live))):
        options = candidates(world, service.cluster, service.pool, service.gpus, service.name)
        if not options:
            _say(world, service, f"(service {service.name}) was unable to place a task because no container instance "
                 "met all of its requirements.")  # fmt: skip
            break
        live = [*live, start_task(world, options[0], service=service)]
    running = sum(1 for t in wanted if t.last == "RUNNING")
    can_stop = running - lower
    for task in leaving:
        container = _container(world, task)
        if can_stop > 0 and container is not None and container.connected:
            order_stop(world, task, *DRAIN)
            can_stop -= 1
    for task in sorted(staying, key=lambda t: (t.last == "RUNNING", -t.created_at))[
        : max(0, len(staying) - service.desired)
    ]:
        order_stop(world, task, *SCALE)


def _daemon(world: World, service: Service, live: list[Task], busy: dict[str, int]) -> None:
    """One task on each ACTIVE instance; on a DRAINING one it is stopped last, when nothing else runs there."""
    have = {t.container for t in live}
    count = 0
    for container in world.containers.values():
        if container.cluster != service.cluster or container.status != "ACTIVE":
            continue
        count += 1
        if container.connected and container.id not in have:
            start_task(world, container, service=service)
    service.desired = count
    for task in live:
        container = _container(world, task)
        if (
            task.desired == "RUNNING"
            and container is not None
            and container.status == "DRAINING"
            and container.connected
            and not busy[container.id]
        ):
            order_stop(world, task, *DRAIN)


def _say(world: World, service: Service, text: str) -> None:
    last = service.messages[0] if service.messages else None
    if last is None or last["message"] != text:
        entry = {"id": world.new_uuid("message"), "createdAt": world.now(), "message": text}
        service.messages = [entry, *service.messages][:20]

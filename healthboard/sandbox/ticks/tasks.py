"""Tasks: pending to running, ordered to stop to stopped, standalone ones to their natural end."""

from __future__ import annotations

from healthboard.sandbox.entities import Task
from healthboard.sandbox.health import flags
from healthboard.sandbox.ticks.agents import finish
from healthboard.sandbox.world import World

STOP_S, KEPT_S = 30, 3600


def tick(world: World) -> None:
    now = world.now()
    for task in list(world.tasks.values()):
        if task.last == "STOPPED":
            if now >= (task.stopped_at or now) + KEPT_S / world.config.speed:
                world.remove(task)
            continue
        container = world.containers.get(task.container)
        if container is None or not container.connected:
            continue  # without its agent nothing starts, stops or is told
        if task.ends_at is not None and now >= task.ends_at and task.last == "RUNNING":
            finish(world, task, "EssentialContainerExited", "Essential container in task exited", 0)
        elif task.desired == "STOPPED":
            _stop(world, task, now)
        elif task.last == "PENDING" and task.until is not None and now >= task.until:
            task.last, task.until, task.started_at = "RUNNING", None, now
            container.version += 1


def order_stop(world: World, task: Task, code: str, reason: str) -> None:
    """What StopTask, a service or a drain does; the container gets SIGTERM and up to its stop time-out."""
    if task.desired == "STOPPED":
        return
    task.desired = "STOPPED"
    task.stopping_at = world.now()
    task.stop_code, task.stop_reason = code, reason
    if task.last == "PENDING":
        finish(world, task, code, reason)
    else:
        task.until = world.after(_stop_s(world, task) * (0.3 + 0.7 * world.rng.random()))


def _stop_s(world: World, task: Task) -> float:
    """What its containers take at most before they are killed: 0 is none of its own, as the agent reads it."""
    known = world.definitions.get(f"{task.family}:{task.revision}")
    return max((box.get("stopTimeout") or STOP_S for box in known.containers), default=STOP_S) if known else STOP_S


def _stop(world: World, task: Task, now: float) -> None:
    if task.until is not None and now >= task.until:
        instance = world.instances[world.containers[task.container].instance]
        if instance.faults and "unkillable" in flags(instance):
            return
        finish(world, task, task.stop_code or "UserInitiated", task.stop_reason or "", 143)

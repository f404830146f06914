"""The ECS agent of each instance: registering, being connected, being away, blinking."""

from __future__ import annotations

from healthboard.sandbox.entities import Container, Instance
from healthboard.sandbox.health import flags, rebooting
from healthboard.sandbox.injure import faults_of
from healthboard.sandbox.world import World

BLINK_EVERY_S, BLINK_JITTER_S, BLINK_S = 1800, 300, 20
#: faster than this agents do not blink more often: forty of them each minute would be most of what happens
BLINK_SPEED = 10.0
INACTIVE_KEPT_S = 3600


def tick(world: World) -> None:
    now = world.now()
    for instance in world.instances.values():
        if instance.agent_at is not None and now >= instance.agent_at:
            instance.agent_at = None
            if instance.state == "running" and instance.cluster in world.clusters:
                _agent_starts(world, instance)
    for container in list(world.containers.values()):
        if container.inactive_at is not None:
            if now >= container.inactive_at + INACTIVE_KEPT_S / world.config.speed:
                world.remove(container)
            continue
        _connect(world, container, now)


def visible_gpus(instance: Instance) -> list[str]:
    """What a starting agent finds: a GPU that is lost or missing is not registered."""
    bad = {record["gpu"] for fault, record in faults_of(instance) if fault.gpu.get("status") in ("lost", "missing")}
    return [card["uuid"] for n, card in enumerate(instance.gpus) if n not in bad]


def register(world: World, instance: Instance, at: float | None = None) -> Container:
    """The agent's first start on an instance."""
    now = world.now()
    assert instance.cluster is not None
    instance.registered = True
    container = Container(
        id=world.new_hex("container", 32),
        cluster=instance.cluster,
        instance=instance.id,
        registered_at=now if at is None else at,
        provider=instance.provider,
        gpus=visible_gpus(instance),
        attributes={
            "ecs.instance-type": instance.type,
            "ecs.availability-zone": instance.zone,
            "ecs.ami-id": instance.image,
            "ecs.os-type": "linux",
            "ecs.capability.gpu-driver-version": "580.95.05",
            **({"pool": instance.pool} if instance.pool else {}),
        },
        blink_at=now + world.rng.random() * (BLINK_EVERY_S + BLINK_JITTER_S) / min(world.config.speed, BLINK_SPEED),
    )
    return world.add(container)


def _agent_starts(world: World, instance: Instance) -> None:
    container = world.container_of.get(instance.id)
    if container is None or container.inactive_at is not None:
        register(world, instance)
        return
    # a restarted agent finds its containers gone and says so
    container.gpus = visible_gpus(instance)
    for task in world.live_tasks(container.id):
        finish(world, task, "EssentialContainerExited", "Essential container in task exited", 137)


def finish(world: World, task, code: str, reason: str, exit_code: int | None = None) -> None:  # type: ignore[no-untyped-def]
    task.last = task.desired = "STOPPED"
    task.until = None
    task.stopping_at = task.stopping_at or world.now()
    task.stopped_at = world.now()
    task.stop_code = task.stop_code or code
    task.stop_reason = task.stop_reason or reason
    task.exit_code = exit_code


def _connect(world: World, container: Container, now: float) -> None:
    instance = world.instances[container.instance]
    if now >= container.blink_at:
        # what fell into a time when the sandbox did not run is not made up for: all would blink at once
        if now - container.blink_at < BLINK_S / world.config.speed + 5:
            container.blink_until = now + BLINK_S / world.config.speed
        every = BLINK_EVERY_S + BLINK_JITTER_S * world.rng.random()
        container.blink_at = now + every / min(world.config.speed, BLINK_SPEED)
    if container.blink_until is not None and now >= container.blink_until:
        container.blink_until = None
    up = (
        instance.state == "running"
        and instance.agent_at is None
        and not rebooting(instance, now)
        and container.blink_until is None
        and not (instance.faults and "agent_away" in flags(instance))
    )
    if up != container.connected:
        container.connected = up
        container.disconnected_at = None if up else now
        container.version += 1


def host_terminated(world: World, instance: Instance) -> None:
    """ECS deregisters the instance of a terminated host only if its agent was connected when the end came."""
    container = world.container_of.get(instance.id)
    if container is None or container.inactive_at is not None:
        return
    if instance.ecs_knows:
        deregister(world, container, f"Host EC2 (instance {instance.id}) terminated.")


def deregister(world: World, container: Container, reason: str) -> None:
    container.status = "INACTIVE"
    container.connected = False
    container.inactive_at = world.now()
    container.version += 1
    for task in world.live_tasks(container.id):
        finish(world, task, "TerminationNotice", reason)

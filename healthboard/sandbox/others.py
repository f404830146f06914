"""What the group, ECS, Spot or a person may do to an instance meanwhile, whoever else is at work on it.

Each takes (world, instance) with the lock held, and returns whether there was anything to do.
"""

from __future__ import annotations

from collections.abc import Callable

from healthboard.sandbox.activities import begin
from healthboard.sandbox.entities import Instance
from healthboard.sandbox.launch import stop, terminate
from healthboard.sandbox.ticks.agents import deregister
from healthboard.sandbox.ticks.groups import MOVE_S, set_member
from healthboard.sandbox.world import World


def spot_takes_it(world: World, instance: Instance) -> bool:
    terminate(world, instance, "Server.SpotInstanceTermination")
    return True


def person_terminates(world: World, instance: Instance) -> bool:
    terminate(world, instance)
    return True


def person_stops(world: World, instance: Instance) -> bool:
    stop(world, instance)
    return True


def person_reactivates(world: World, instance: Instance) -> bool:
    container = world.container_of.get(instance.id)
    if container is None or container.status != "DRAINING":
        return False
    container.status = "ACTIVE"
    container.version += 1
    return True


def ecs_deregisters(world: World, instance: Instance) -> bool:
    container = world.container_of.get(instance.id)
    if container is None or container.inactive_at is not None:
        return False
    deregister(world, container, "Container instance was deregistered forcefully by user.")
    return True


def person_detaches(world: World, instance: Instance) -> bool:
    """Without decrement, as the console proposes it."""
    group = world.group_of(instance.id)
    if group is None or group.members[instance.id]["state"] not in ("InService", "Standby"):
        return False
    set_member(group, instance.id, state="Detaching", until=world.after(MOVE_S))
    begin(world, group, "detach", instance.id, f"Detaching EC2 instance: {instance.id}", "a user request")
    return True


def person_ends_standby(world: World, instance: Instance) -> bool:
    group = world.group_of(instance.id)
    if group is None or group.members[instance.id]["state"] != "Standby" or group.desired >= group.maximum:
        return False
    group.desired += 1
    set_member(group, instance.id, state="Pending", until=world.after(MOVE_S), bad_since=None)
    begin(world, group, "exit_standby", instance.id, f"Moving EC2 instance out of Standby: {instance.id}", "a user")
    return True


def group_replaces_it(world: World, instance: Instance) -> bool:
    return _group_ends(world, instance, shrink=False)


def group_scales_it_in(world: World, instance: Instance) -> bool:
    return _group_ends(world, instance, shrink=True)


def _group_ends(world: World, instance: Instance, *, shrink: bool) -> bool:
    group = world.group_of(instance.id)
    if group is None or group.members[instance.id]["state"] != "InService":
        return False  # a group leaves its Standby members alone
    if shrink:
        if group.desired <= group.minimum:
            return False
        group.desired -= 1
    begin(world, group, "terminate", instance.id, f"Terminating EC2 instance: {instance.id}",
          "shrinking the capacity" if shrink else "an EC2 health check")  # fmt: skip
    set_member(group, instance.id, state="Terminating", until=None)
    terminate(world, instance, "Server.AutoScaling")
    return True


HANDS: dict[str, Callable[[World, Instance], bool]] = {
    hand.__name__: hand
    for hand in (
        spot_takes_it, person_terminates, person_stops, person_reactivates, ecs_deregisters, person_detaches,
        person_ends_standby, group_replaces_it, group_scales_it_in,
    )
}  # fmt: skip


def meddle(world: World, instance_id: str, hand: str) -> bool:
    """One hand on one running instance. False where there was nothing to do."""
    instance = world.instances.get(instance_id)
    return instance is not None and instance.state == "running" and HANDS[hand](world, instance)

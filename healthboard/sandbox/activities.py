"""Scaling activities: what a group did, and why it says it did."""

from __future__ import annotations

from collections.abc import Sequence

from healthboard.sandbox.entities import Activity, Group
from healthboard.sandbox.world import World


def begin(
    world: World, group: Group, what: str, instance: str, description: str, cause: str, *, zone: str = "",
    error: str = "", message: str = "",
) -> Activity:  # fmt: skip
    """Record an activity; with `error` it has failed already."""
    now = world.now()
    known = world.instances.get(instance)
    return world.add(
        Activity(
            id=world.new_uuid("activity"), group=group.id, what=what, instance=instance, description=description,
            cause=cause, started_at=now, zone=zone or (known.zone if known else ""), order=world.count("activity-order"),
            status="Failed" if error else "InProgress", error=error, message=message, ended_at=now if error else None,
        )
    )  # fmt: skip


def finish(world: World, group: Group, instance: str, whats: Sequence[str], error: str = "") -> None:
    """End the activities of these kinds that are under way for the instance."""
    for activity in world.activities.values():
        if (
            activity.group == group.id
            and activity.instance == instance
            and activity.what in whats
            and activity.status == "InProgress"
        ):
            activity.status = "Failed" if error else "Successful"
            activity.error = error
            activity.ended_at = world.now()

"""What moves by itself: called a few times a second for each world, with the lock held."""

from __future__ import annotations

from healthboard.sandbox.ticks import agents, groups, instances, jobs, services, tasks
from healthboard.sandbox.world import World


def tick(world: World) -> None:
    instances.tick(world)
    agents.tick(world)
    tasks.tick(world)
    services.tick(world)
    jobs.tick(world)
    groups.tick(world)

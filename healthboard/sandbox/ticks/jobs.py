"""Standalone tasks that people start now and then; each ends by itself well within a minute (at the default speed)."""

from __future__ import annotations

from healthboard.sandbox.ticks.place import candidates, start_task
from healthboard.sandbox.world import World

#: pool -> (family, tasks of one job, GPUs of each)
JOBS = {"train": ("evaluate", 2, 2), "solo": ("preprocess", 1, 2), "batch": ("nightly-render", 1, 1)}
LENGTH_S = (200, 380)


def tick(world: World) -> None:
    now = world.now()
    counters = world.counters
    due = counters.jobs
    for pool, (family, width, gpus) in JOBS.items():
        if now < due.get(pool, 0):
            continue
        due = {**due, pool: world.after(300 + 300 * world.rng.random())}
        if any(t.family == family and t.last != "STOPPED" for t in world.tasks.values()):
            continue
        cluster = next((i.cluster for i in world.instances.values() if i.pool == pool and i.state == "running"), None)
        if cluster is None:
            continue
        started_by = f"{family}/{world.new_hex('job', 8)}"
        ends = world.after(LENGTH_S[0] + (LENGTH_S[1] - LENGTH_S[0]) * world.rng.random())
        for _ in range(width):
            options = candidates(world, cluster, pool, gpus, pack=True)
            if options:
                start_task(world, options[0], family=family, started_by=started_by, gpus=gpus, ends_at=ends)
    if due is not counters.jobs:
        counters.jobs = due

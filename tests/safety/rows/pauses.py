"""T3: the worker stands still at a fault point beyond its lease, another carries on, then the first one goes on."""

from __future__ import annotations

import time
from typing import Any

from healthboard.repairs.lifecycle import LEASE
from tests.safety import checks
from tests.safety.board import COMMITS, ENDED, STARTED
from tests.safety.conductor import STOP, Conductor, seeded
from tests.safety.flows import Flow

#: seconds of the trial in one step while the lease runs out
STRIDE_S = 5


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    [(name, ordinal)] = spec["points"]
    standing: list[Any] = []

    def stopped(worker: Any) -> None:
        standing.append(worker)
        repair = conductor.the_repair()
        worker.claim = repair.fence if repair.lease_owner.endswith(f":{worker.pid}") else None
        conductor.worker()

    conductor.reached.append(stopped)
    conductor.worker(name=name, ordinal=ordinal, signal=STOP)
    conductor.finish(flow.within_s, lambda: standing)
    broken: list[str] = []
    if standing:
        _past_the_lease(conductor, seeded(spec["point"], spec["seed"]).randrange(12))
        broken = _go_on(conductor, standing[0])
    conductor.finish(flow.within_s)
    broken += checks.after(conductor, flow)
    return {"broken": broken, "reached": len(standing), "recovery": 0}


def _past_the_lease(conductor: Conductor, more: int) -> None:
    for _ in range(int(LEASE.total_seconds()) // STRIDE_S + 1):
        conductor.step(STRIDE_S)
    for _ in range(more):
        if not conductor.over():
            conductor.step()


def _go_on(conductor: Conductor, worker: Any) -> list[str]:
    """Nothing else moves until its task has ended: what is written and called is its own."""
    board, number = conductor.board, worker.number
    lost = worker.claim is not None and conductor.the_repair().fence != worker.claim
    commits, calls = board.get(COMMITS, number), len(checks.log(conductor))
    worker.go_on()
    end = time.monotonic() + 20
    while board.get(STARTED, number) != board.get(ENDED, number) and time.monotonic() < end:
        time.sleep(0.005)
    if not lost:
        return []
    wrote = board.get(COMMITS, number) - commits
    made = [c["operation"] for c in checks.log(conductor)[calls:]]
    broken = [f"wrote {wrote} times with a lost fence"] if wrote else []
    if len(made) > 1 or set(made) - checks.REPEATED:
        broken.append(f"called {made} with a lost fence")
    return broken

"""T4: two workers; each message is lost, late, five times there or in another order; the broker is emptied or restarted."""

from __future__ import annotations

import time
from typing import Any

import redis

from tests.safety import checks
from tests.safety.board import DELIVERIES, ENDED, STARTED
from tests.safety.conductor import WAIT_S, Conductor, Stuck, seeded, send
from tests.safety.flows import Flow

LOST, LATE, DOUBLED = 0.2, 0.2, 0.35
COPIES, MOST_LATE = 5, 6
EMPTIED = 0.04
#: real seconds after which a worker that takes no message any more notices it here, so that nobody waits for long
DEAF_S = 10.0
#: and in which it is gone
GONE_S = DEAF_S + 30


class Broker:
    """Sends what is due, and spoils it by a seeded script."""

    def __init__(self, conductor: Conductor, spec: dict[str, Any]) -> None:
        self.conductor, self.rng = conductor, seeded("T4", spec["flow"], spec["seed"])
        self.late: list[tuple[float, str, tuple[Any, ...]]] = []
        self.restart_at = conductor.offset + self.rng.randrange(3, 30) if spec["point"] == "restarted" else None
        self.restarted = False
        self.spoiled = 0

    def sweep(self) -> None:
        """In the place of the conductor's own."""
        now = self.conductor.offset
        due = [("workers.repair.sweep", ()), ("workers.verify.sweep", ())]
        due += [("workers.repair.advance", (self.conductor.the_repair().pk,))]
        ready = [(task, args) for at, task, args in self.late if at <= now]
        self.late = [row for row in self.late if row[0] > now]
        for message in due:
            chance = self.rng.random()
            if chance < LOST:
                self.spoiled += 1
            elif chance < LOST + LATE:
                self.spoiled += 1
                self.late.append((now + self.rng.randint(1, MOST_LATE), *message))
            elif chance < LOST + LATE + DOUBLED:
                self.spoiled += 1
                ready += [message] * COPIES
            else:
                ready.append(message)
        self.rng.shuffle(ready)
        for task, args in ready:
            send(task, args)
        if self.rng.random() < EMPTIED:
            redis.Redis.from_url(self.conductor.site.redis).flushall()
        if self.restart_at is not None and now >= self.restart_at:
            self.restart_at, self.restarted = None, True
            self._restart()
        for queue in ("repair", "verify"):
            self._handled(queue)
        idle(self.conductor)

    def _handled(self, queue: str) -> None:
        """After a restart of the broker workers may stay deaf, and end themselves. The supervisor starts others."""
        try:
            self.conductor.wait(queue, GONE_S if self.restarted else WAIT_S)
        except Stuck:
            if not self.restarted:
                raise
            self.restarted = False
            if any(worker.running for worker in self.conductor.workers):
                raise
            self.conductor.worker(deaf=DEAF_S)
            self.conductor.worker(deaf=DEAF_S)
            self.conductor.wait(queue)

    def _restart(self) -> None:
        """Nothing that stood in it is there afterwards."""
        with redis.Redis.from_url(self.conductor.site.redis) as server:
            server.shutdown(nosave=True)
        self.conductor.site.start_valkey()


def idle(conductor: Conductor) -> None:
    board, end = conductor.board, time.monotonic() + 10
    while time.monotonic() < end and any(
        board.get(STARTED, w.number) != board.get(ENDED, w.number) for w in conductor.workers if not w.ended
    ):
        time.sleep(0.002)


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    broker = Broker(conductor, spec)
    conductor.sweep = broker.sweep  # type: ignore[method-assign]
    conductor.worker(deaf=DEAF_S)
    conductor.worker(deaf=DEAF_S)
    conductor.finish(flow.within_s)
    return {
        "broken": checks.after(conductor, flow), "reached": broker.spoiled, "recovery": 0,
        "size": conductor.board.total(DELIVERIES),
    }  # fmt: skip

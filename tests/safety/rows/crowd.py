"""T6: four workers, and each wake-up for each of them, while AWS refuses, drops and delays what it likes."""

from __future__ import annotations

import random
from typing import Any

from tests.safety import checks
from tests.safety.conductor import Conductor, seeded, send
from tests.safety.flows import Flow
from tests.safety.rows.broker import idle

CROWD = 4
RULES = 6
READING = (
    "DescribeInstances", "DescribeInstanceStatus", "DescribeContainerInstances", "DescribeAutoScalingGroups",
    "DescribeAutoScalingInstances", "ListTasks", "DescribeTasks", "DescribeScalingActivities",
)  # fmt: skip
MODES = ("error", "drop_before", "drop_after", "error_after")
#: every step of every recipe: what AWS did may need a person anywhere
ANYWHERE = frozenset({
    "recheck", "room", "keep", "drain", "standby", "step_aside", "tasks", "launch", "replacement", "detach", "terminate",
    "deregister", "reboot", "boot", "diagnose", "soak", "rejoin", "activate", "verify", "undo_standby", "undo_drain",
    "undo_surplus", "undo_launch",
})  # fmt: skip


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    rng = seeded("T6", spec["flow"], spec["seed"])
    conductor.rules(*(_rule(rng, flow) for _ in range(RULES)))
    for _ in range(CROWD):
        conductor.worker()

    def sweep() -> None:
        repair = conductor.the_repair().pk
        for _ in range(CROWD):
            send("workers.repair.sweep")
            send("workers.repair.advance", (repair,))
        send("workers.verify.sweep")
        for queue in ("repair", "verify"):
            conductor.wait(queue)
        idle(conductor)

    conductor.sweep = sweep  # type: ignore[method-assign]
    conductor.finish(flow.within_s)
    spoiled = sum(1 for rule in conductor.fleet.engine.sandbox.rules if not rule["times"])
    return {"broken": checks.after(conductor, flow, asks=ANYWHERE, ends=False), "reached": spoiled, "recovery": 0}


def _rule(rng: random.Random, flow: Flow) -> dict[str, Any]:
    changing = [*flow.calls, *(["RunInstances"] if flow.launches else [])]
    operation = rng.choice(changing if rng.random() < 0.6 else READING)
    return {"operation": operation, "do": rng.choice(MODES), "times": rng.randint(1, 3), "skip": rng.randrange(2)}

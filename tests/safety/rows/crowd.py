"""T6: several workers, and each wake-up for each of them, on eight repairs at once, while AWS refuses, drops and delays
what it likes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from healthboard.cases import invariants
from healthboard.fleet.models import Instance
from healthboard.repairs.models import Repair
from tests.safety import checks
from tests.safety.conductor import Conductor, seeded, send
from tests.safety.flows import Flow
from tests.safety.rows.broker import idle

MOST = 5
RULES = 8
READING = (
    "DescribeInstances", "DescribeInstanceStatus", "DescribeContainerInstances", "DescribeAutoScalingGroups",
    "DescribeAutoScalingInstances", "ListTasks", "DescribeTasks", "DescribeScalingActivities",
)  # fmt: skip
CHANGED = {
    "solo": (checks.DRAIN, "RunInstances", "TerminateInstances", "RebootInstances", "DeregisterContainerInstance"),
    "train": (checks.DRAIN, "EnterStandby", "DetachInstances", "ExitStandby", "TerminateInstances", "RebootInstances"),
}
MODES = ("error", "drop_before", "drop_after", "error_after")


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    rng = seeded("T6", spec["flow"], spec["seed"])
    subjects: list[str] = conductor.begun["crowd"]
    conductor.rules(*(_rule(rng, flow) for _ in range(RULES)))
    workers = rng.randint(2, MOST)
    for _ in range(workers):
        conductor.worker()

    def sweep() -> None:
        for _ in range(workers):
            send("workers.repair.sweep")
            send("workers.repair.advance", (rng.choice(repairs),))
        send("workers.verify.sweep")
        for queue in ("repair", "verify"):
            conductor.wait(queue)
        idle(conductor)

    repairs = list(Repair.objects.values_list("pk", flat=True))
    conductor.sweep = sweep  # type: ignore[method-assign]
    conductor.over = lambda: _over(subjects)  # type: ignore[method-assign, assignment, return-value]
    conductor.finish(flow.within_s)
    spoiled = sum(1 for rule in conductor.fleet.engine.sandbox.rules if not rule["times"])
    return {
        "broken": [*_checked(conductor, flow, subjects), *invariants.check()], "reached": spoiled, "recovery": 0,
        "size": len(subjects),
    }  # fmt: skip


def _over(subjects: list[str]) -> bool:
    rows = Repair.objects.filter(instance__instance_id__in=subjects)
    return all(r.state == "ASKING" or (r.closed_at and r.carried_back_at) for r in rows)


def _checked(conductor: Conductor, flow: Flow, subjects: list[str]) -> Iterator[str]:
    if not _over(subjects):
        yield f"not over within {flow.within_s:.0f} s: {conductor.said()}"
        return
    made = checks.log(conductor)
    rows = list(Repair.objects.select_related("instance"))
    if sorted(r.instance.instance_id for r in rows) != sorted(subjects):
        yield f"{len(rows)} repairs of {len({r.instance_id for r in rows})} machines, for {len(subjects)} that were broken"
    for row in rows:
        yield from _calls(row, [c["operation"] for c in made if c["target"] == row.instance.instance_id])
    launched = {c["target"] for c in made if c["operation"] == "RunInstances"}
    if len(launched) > sum(r.calls.filter(operation="RunInstances").exists() for r in rows):
        yield f"{len(launched)} launches: {sorted(launched)}"
    # what a group launched for one of ours, and took back, is ours as well
    ours = {*subjects, *launched, *Instance.objects.filter(launched_by_us=True).values_list("instance_id", flat=True)}
    if strangers := {c["target"] for c in made} - ours:
        yield f"changed others: {sorted(strangers)}"
    alive = [i for i in conductor.fleet.world.instances.values() if i.pool == flow.pool and i.state == "running"]
    asking = [r for r in rows if r.state == "ASKING"]
    if not flow.size <= len(alive) <= flow.size + len(asking):
        yield f"{len(alive)} machines instead of {flow.size}, with {len(asking)} repairs that ask"


def _calls(row: Repair, names: list[str]) -> Iterator[str]:
    for name in {*names} - checks.REPEATED:
        if names.count(name) > 1:
            yield f"{names.count(name)} {name} on {row.instance}"
    if "TerminateInstances" in names and (checks.DRAIN not in names or row.outcome not in ("REPLACED", "")):
        yield f"{row.instance} was ended; its repair: {row.state} {row.outcome}"
    if row.state == "SUCCEEDED" and row.outcome not in ("REPLACED", "REBOOTED", "REPLACED_BY_GROUP"):
        yield f"{row} ended as {row.outcome}: {row.outcome_why}"


def _rule(rng: random.Random, flow: Flow) -> dict[str, Any]:
    changing = CHANGED[flow.pool]
    operation = rng.choice(changing if rng.random() < 0.6 else READING)
    return {"operation": operation, "do": rng.choice(MODES), "times": rng.randint(1, 3), "skip": rng.randrange(6)}

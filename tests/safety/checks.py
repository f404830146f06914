"""What must be so after a trial, read from the database and from AWS's own log: one sentence for each thing that is not."""

from __future__ import annotations

from collections.abc import Iterator

from healthboard.cases import invariants
from healthboard.cases.models import Case, Decision
from healthboard.repairs.models import Occupancy, Repair
from healthboard.sandbox.status import status
from tests.safety.conductor import Conductor
from tests.safety.flows import DRAIN, Flow

#: sent again without harm: AWS knows the token, or that it is so already
REPEATED = {
    "RunInstances",
    "TerminateInstances",
    DRAIN,
    "DeregisterContainerInstance",
    "StopInstances",
    "StartInstances",
}
#: what `error_after` answers once the call has had its effect; nothing else of the sandbox answers so
ALL_THE_SAME = {"InternalError", "InternalFailure"}


def log(conductor: Conductor) -> list[dict[str, str]]:
    """Changing calls that AWS carried out, whatever it answered, oldest first."""
    sandbox = conductor.fleet.engine.sandbox
    with sandbox.lock:
        calls = status(sandbox, conductor.fleet.url)["calls"]
    return carried_out(calls)


def carried_out(calls: list[dict[str, str]]) -> list[dict[str, str]]:
    return [c for c in calls if c["operation"] in invariants.CHANGING and c["outcome"] in {"ok", *ALL_THE_SAME}]


def after(
    conductor: Conductor, flow: Flow, *, asks: frozenset[str] | None = None, ends: bool = True
) -> list[str]:  # fmt: skip
    """All checks, once the repair is over. `asks`: steps at which it may ask a person; `ends` False: it may also have
    been given up and taken back."""
    repair = conductor.over()
    if repair is None:
        return [f"not over within {flow.within_s:.0f} s: {conductor.said()}"]
    return [
        *invariants.check(),
        *_calls(conductor, flow),
        *_decided_once(conductor),
        *_ended(conductor, flow, repair, flow.asks if asks is None else asks, ends),
    ]


def _calls(conductor: Conductor, flow: Flow) -> Iterator[str]:
    made = [c for c in log(conductor) if c["target"] == conductor.subject]
    names = [c["operation"] for c in made]
    for operation in {*names} - {*flow.calls}:
        yield f"{operation} on {conductor.subject}, which this flow never does"
    for operation, most in flow.calls.items():
        if names.count(operation) > most and operation not in REPEATED:
            yield f"{names.count(operation)} {operation} on {conductor.subject} instead of {most}"
    if "TerminateInstances" in names and DRAIN in names and names.index("TerminateInstances") < names.index(DRAIN):
        yield "terminated before it was drained"
    launched = {c["target"] for c in log(conductor) if c["operation"] == "RunInstances"}
    if len(launched) > flow.launches:
        yield f"{len(launched)} launches: {sorted(launched)}"


def _decided_once(conductor: Conductor) -> Iterator[str]:
    repairs = Repair.objects.filter(instance__instance_id=conductor.subject)
    if repairs.count() != 1:
        yield f"{repairs.count()} repairs of {conductor.subject}"
    decisions = Decision.objects.filter(case__instance__instance_id=conductor.subject, repair__isnull=False)
    if decisions.count() != 1:
        yield f"{decisions.count()} decisions were carried out on {conductor.subject}"


def _ended(conductor: Conductor, flow: Flow, repair: Repair, asks: frozenset[str], ends: bool) -> Iterator[str]:
    if repair.state == "ASKING":
        if repair.step not in asks:
            yield f"asks at {repair.step}: {repair.why_waiting}"
        return
    if (repair.state, repair.outcome) != (flow.state, flow.outcome):
        if not ends and repair.state in ("FAILED", "CANCELLED"):
            return
        yield f"ended as {repair.state} {repair.outcome} ({repair.outcome_why}), not {flow.state} {flow.outcome}"
    world = conductor.fleet.world
    alive = [i for i in world.instances.values() if i.pool == flow.pool and i.state in ("running", "pending")]
    if len(alive) != flow.size:
        yield f"{len(alive)} machines instead of {flow.size}"
    if (conductor.subject in {i.id for i in alive}) != flow.kept:
        yield f"{conductor.subject} is {'gone' if flow.kept else 'still there'}"
    left = [c.instance for c in world.containers.values() if c.status == "DRAINING"]
    if left:
        yield f"left draining: {left}"
    for group in (g for g in world.groups.values() if g.pool == flow.pool):
        if group.desired != flow.size:
            yield f"desired capacity {group.desired} instead of {flow.size}"
        if any(m["state"] != "InService" for m in group.members.values()):
            yield f"group members: {sorted(m['state'] for m in group.members.values())}"
    if Occupancy.objects.filter(released_at=None).exists():
        yield "a unit of the budget is still taken"
    case = Case.objects.filter(instance__instance_id=conductor.subject).order_by("pk").first()
    if flow.state == "SUCCEEDED" and case.state != "CLOSED":
        yield f"the case is {case.state}"

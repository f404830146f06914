"""A made-up repair: its steps along the product's recipe, the calls that they made, and what the record tells of them."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from healthboard.fleet.models import Instance
from healthboard.people.actors import WORKER, Actor
from healthboard.repairs.budget import FREE, allowed_out
from healthboard.repairs.models import Call, Launch, Occupancy, Repair, Step
from healthboard.repairs.recipes import STEPS, recipe
from healthboard.seed.cases import Fault
from healthboard.seed.rows import Rows, Told

#: step -> (service, operation) of its one call
CALLS = {
    "drain": ("ecs", "UpdateContainerInstancesState"),
    "standby": ("autoscaling", "EnterStandby"),
    "step_aside": ("autoscaling", "EnterStandby"),
    "launch": ("ec2", "RunInstances"),
    "detach": ("autoscaling", "DetachInstances"),
    "terminate": ("ec2", "TerminateInstances"),
    "deregister": ("ecs", "DeregisterContainerInstance"),
    "reboot": ("ec2", "RebootInstances"),
    "rejoin": ("autoscaling", "ExitStandby"),
    "activate": ("ecs", "UpdateContainerInstancesState"),
}


def begin(fault: Fault, rows: Rows, at: datetime, actor: Actor, action: str = "") -> Repair:
    """A repair that was scheduled at `at`, and takes its first step after the undo window."""
    one, policy = fault.one, fault.seen.policy
    repair = Repair(
        instance=one.row, pool=one.row.pool, action=action or fault.judged.action, owner=one.row.owner,
        automatic=not actor.is_person, requested_by=actor.name, settings=dict(policy.values),
        policy_version=policy.version, opened_at=at, not_before=at + timedelta(seconds=30),
        next_at=at + timedelta(seconds=30), facts={"watch": True} if fault.judged.watch else {},
    )  # fmt: skip
    rows.repairs.append(repair)
    _tell(rows, repair, at, "repair.scheduled", f"{repair.action} of {one.row} scheduled", actor)
    return repair


def walk(repair: Repair, rows: Rows, rng: random.Random, size: int, until: str = "") -> datetime:
    """Take the steps of its recipe in a pool of `size`, up to and without the end of `until`; returns when the last
    one ended or began."""
    at, watch = repair.not_before, bool(repair.facts.get("watch"))
    _take(repair, rows, at, size)
    _tell(rows, repair, at, "repair.running", "the undo window is over", WORKER)
    repair.state = "RUNNING"
    for number, name in enumerate(recipe(repair.action, repair.owner, watch=watch), 1):
        minutes = STEPS[name].minutes * rng.uniform(0.5, 1.5)
        end = at + timedelta(minutes=minutes, seconds=rng.uniform(1, 6))
        step = Step(repair=repair, number=number, name=name, state="RUNNING", started_at=at)
        rows.steps.append(step)
        repair.step = name
        if name in CALLS:
            _call(repair, step, rows, at + timedelta(seconds=0.5))
        if name == until:
            return at
        step.state, step.ended_at, step.note = "DONE", end, STEPS[name].detail
        repair.irreversible |= STEPS[name].irreversible
        _tell(rows, repair, end, "repair.step", f"{name}: {step.note}", WORKER, step=name, state="DONE")
        at = end
    return at


def ask(repair: Repair, rows: Rows, at: datetime, why: str) -> None:
    """It stands still and asks a person."""
    repair.state, repair.why_waiting, repair.next_at = "ASKING", why, at
    repair.facts = {
        **repair.facts,
        "choices": [
            {"key": "wait_longer", "title": "Wait longer", "needs": "decide"},
            {"key": "undo", "title": "Undo: return it to service", "needs": "decide"},
        ],
    }
    _tell(rows, repair, at, "repair.asking", why, WORKER)


def end(repair: Repair, rows: Rows, at: datetime, outcome: str, why: str, *, state: str = "SUCCEEDED") -> None:
    repair.state, repair.outcome, repair.outcome_why = state, outcome, why
    repair.closed_at = repair.carried_back_at = repair.next_at = at
    for taken in reversed(rows.occupancy):
        if taken.repair is repair:
            taken.released_at = at
            break
    _tell(rows, repair, at, f"repair.{state.lower()}", f"{outcome}: {why}", WORKER)


def replaced_by(repair: Repair, rows: Rows, new: Instance, at: datetime) -> None:
    repair.replacement, new.launched_by_us = new, True
    rows.launches.append(
        Launch(
            repair=repair, pool=repair.pool, instance_type=new.instance_type, zone=new.zone, outcome="SERVED",
            why="it serves", at=at,
        )
    )  # fmt: skip
    text = f"{new.instance_id} replaces {repair.instance}"
    _tell(rows, repair, at, "repair.replacement", text, WORKER, replacement=new.instance_id)


def _take(repair: Repair, rows: Rows, at: datetime, size: int) -> None:
    if repair.action in FREE:
        return
    rows.occupancy.append(
        Occupancy(
            repair=repair, pool=repair.pool, units=1, taken_at=at, size=size,
            allowed=allowed_out(size, repair.settings), out_before=0,
        )
    )  # fmt: skip


def _call(repair: Repair, step: Step, rows: Rows, at: datetime) -> None:
    service, operation = CALLS[step.name]
    target = repair.instance.instance_id
    request = {"InstanceIds": [target]} if service != "ecs" else {"containerInstances": [repair.instance.container_arn]}
    call = Call(
        step=step, repair=repair, service=service, operation=operation, target=target, request=request, fence=1,
        intended_at=at, answered_at=at + timedelta(seconds=0.4), outcome="ok",
    )  # fmt: skip
    rows.calls.append(call)
    _tell(rows, repair, at, "repair.intent", f"{operation} on {target}", WORKER, call=call, request=request)
    _tell(rows, repair, call.answered_at, "repair.outcome", f"{operation} on {target}: ok", WORKER, call=call)


def _tell(rows: Rows, repair: Repair, at: datetime, verb: str, summary: str, actor: Actor, *,
          call: Call | None = None, **payload: Any) -> None:  # fmt: skip
    rows.told.append(Told(at, verb, summary, actor, repair, repair.instance, None, repair, payload, call))

"""Start the replacement of a machine of a launch template: one token for each launch, one zone after the other."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from healthboard.repairs import launches, lifecycle
from healthboard.repairs.models import Call, Launch
from workers.repair import origin, zones
from workers.repair.results import Ask, Done, Result, Wait
from workers.repair.run import PASSING, Run
from workers.repair.steps.leave import _AGAIN, _UNDO, _choice

NO_CAPACITY = (
    "InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientHostCapacity", "ReservationCapacityExceeded",
    "InsufficientReservedInstanceCapacity", "MaxSpotInstanceCountExceeded", "Unsupported",
)  # fmt: skip
ANOTHER = _choice("launch_again", "Launch another")
FIRST = _choice("terminate_first", "Terminate first, then start the replacement", "terminate_first")


def intended(run: Run) -> list[Call]:
    """Calls of the launch under way that may have made an instance. Those of one that has ended since are not among them."""
    token = (run.facts.get("launch_request") or {}).get("ClientToken")
    return [call for call in run.calls("RunInstances") if call.token == token]


def another(run: Run) -> None:
    """In place of one that has ended: an intent of its own, with a token of its own. What was frozen for the first one and
    what it gave is forgotten, the place is chosen anew."""
    run.remember(launch_request=None, launched_id=None, launch_zones=[], no_capacity=None)


def token_for(repair_id: int, number: int) -> str:
    """Derived, so that a repeat after a crash is the same launch; at most 64 ASCII characters."""
    return "healthboard-" + hashlib.sha256(f"{repair_id}:{number}".encode()).hexdigest()[:48]


def launch(run: Run) -> Result:
    """RunInstances from the frozen template version, with the stored token: a repeat returns the same instance."""
    made = run.repair.calls.filter(operation="RunInstances")
    open_ones = [c for c in made if c.outcome in ("", "ok", "unknown")]
    new = run.repair.replacement
    if new is not None and new.instance_id not in run.facts.get("ended_launches", ()):
        return Done(f"{new} starts")
    if open_ones and open_ones[-1].outcome == "ok" and run.facts.get("launched_id"):
        return _bind(run, run.facts["launched_id"])
    if not run.facts.get("launch_request"):
        if asked := origin.unknown(run):
            return failed(run, asked)
        place, note = zones.first(run)
        run.remember(
            launch_home=zones.home(run), launch_note=note, **_frozen(run, run.facts.get("launch_number", 0) + 1, place)
        )
    request = run.facts["launch_request"]
    outcome, answer = run.change("ec2", "RunInstances", request, token=request["ClientToken"])
    if outcome == "ok":
        instance_id = answer["Instances"][0]["InstanceId"]
        run.remember(launched_id=instance_id)
        return _bind(run, instance_id)
    said = f"{outcome} {answer.get('message', '')}".strip()
    if outcome == "unknown" or PASSING.search(outcome):
        if run.late("launch_timeout_s", 900):
            return failed(run, Ask(f"EC2 does not answer the launch clearly: {outcome}.", (_AGAIN, _UNDO)))
        return Wait(5, f"EC2 answered {outcome}; the same request with the same token is sent again")
    if outcome in NO_CAPACITY:
        return _no_capacity(run, outcome, said)
    return failed(run, Ask(f"EC2 refused the launch: {said}", (_AGAIN, _UNDO)))


def _no_capacity(run: Run, outcome: str, said: str) -> Result:
    """The next zone, if there is one, by a launch of its own; else the same again, later and later."""
    zone = run.facts.get("launch_zone", "")
    launches.note(run.repair, Launch.Outcome.NO_CAPACITY, zone=zone, why=said)
    run.remember(no_capacity=said)
    if run.late("launch_timeout_s", 900):
        return failed(run, Ask(
            f"No capacity for {run.instance.instance_type}: {outcome}. The drained machine is kept.",
            (_choice("wait_longer", "Keep trying"), *(() if run.look.gone else (FIRST, _UNDO))),
        ))  # fmt: skip
    refused = run.repair.calls.filter(operation="RunInstances", outcome__in=NO_CAPACITY).count()
    fresh = False
    if not intended(run) and (place := zones.after(run, zone)):
        # every launch so far was refused, so none is under way: another one may be intended
        fresh = place["zone"] not in run.facts.get("launch_zones", [])
        run.remember(**_frozen(run, run.facts.get("launch_number", 1) + 1, place))
    again = f"trying {run.facts.get('launch_zone') or 'again'}"
    why = f"no capacity for a replacement in {zone} ({outcome}); the drained machine is kept, {again}"
    return Wait(5 if fresh else _backoff(refused), why)


def _backoff(times: int) -> float:
    """Seconds to the next try: longer each time, at most five minutes, never all at the same moment."""
    return min(30 * 2 ** min(times - 1, 6), 300) * random.uniform(0.8, 1.2)


def failed(run: Run, asked: Ask, zone: str | None = None) -> Ask:
    """A launch that a person has to look at has failed: it counts for its pool and its zone."""
    place = run.facts.get("launch_zone", "") if zone is None else zone
    launches.note(run.repair, Launch.Outcome.FAILED, zone=place, why=asked.why)
    return asked


def _frozen(run: Run, number: int, place: dict[str, Any]) -> dict[str, Any]:
    """What is remembered of a launch before it is intended: a repeat sends exactly this."""
    tried = run.facts.get("launch_zones", [])
    return {
        "launch_number": number,
        "launch_request": {**_request(run, number), **place["request"]},
        "launch_zone": place["zone"],
        "launch_zones": [*tried, place["zone"]] if place["zone"] not in tried else tried,
    }


def _request(run: Run, number: int) -> dict:
    old = origin.of(run)
    return {
        "LaunchTemplate": {"LaunchTemplateId": old["template"], "Version": old["version"]},
        "InstanceType": old["type"],
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": token_for(run.repair.pk, number),
        "TagSpecifications": [
            {
                "ResourceType": "instance",
                "Tags": [
                    {"Key": k, "Value": v} for k, v in sorted(old["tags"].items())
                    if not k.startswith("aws:") and not k.startswith("healthboard:")
                ] + [
                    {"Key": "healthboard:managed", "Value": "true"},
                    {"Key": "healthboard:repair", "Value": str(run.repair.pk)},
                ],
            }
        ],
    }  # fmt: skip


def _bind(run: Run, instance_id: str) -> Result:
    if lifecycle.assign_replacement(run.repair, instance_id) is None:
        return Ask(f"{instance_id} is bound to another repair already.", (_UNDO,))
    return Done(f"{instance_id} starts {run.facts.get('launch_note', '')}".strip())

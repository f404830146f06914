"""Whether a replacement serves, read from AWS and from its own reports: the proof before the old machine is ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from healthboard import clock
from healthboard.fleet import condemned
from healthboard.fleet.models import Instance, Interval
from healthboard.policies.reading import GOOD, reread
from workers.repair.look import look_at
from workers.repair.run import Run


@dataclass(frozen=True, slots=True)
class Problem:
    why: str
    final: bool = False  # waiting will not mend it: a person decides
    gone: bool = False  # it has ended


def why_not_serving(run: Run, new: Instance) -> Problem | None:
    old = run.instance
    look = look_at(new)
    if look.gone or look.state in ("stopping", "stopped"):
        return Problem(f"it is {look.state}", final=True, gone=look.gone)
    if look.state != "running":
        return Problem(f"EC2 shows it as {look.state or 'not there yet'}")
    if not look.ec2.get("InstanceType") or not look.ec2.get("Placement"):
        return Problem("EC2 does not tell its type and place")
    if look.ec2["InstanceType"] != old.instance_type:
        return Problem(f"it is a {look.ec2['InstanceType']}, not a {old.instance_type}", final=True)
    if _purchase(look.ec2) != (run.facts.get("purchase") or _purchase(look.ec2)):
        return Problem(f"it was bought as {_purchase(look.ec2)}, not {run.facts['purchase']}", final=True)
    registered = _registered_gpus(look.container or {})
    if known := condemned.on(new, registered):  # also where the gate keeps its agent from starting
        uuid, why = next(iter(known.items()))
        return Problem(f"it carries condemned hardware: {uuid} ({why})", final=True)
    wanted = old.placement_group
    if wanted and look.ec2["Placement"].get("GroupName") != wanted:
        return Problem(f"it is not in the placement group {wanted}", final=True)
    if not new.container_arn or look.container is None:
        return Problem("not registered with ECS yet")
    if look.ecs_status != "ACTIVE" or look.connected is not True:
        return Problem(f"ECS shows it as {look.ecs_status}, agent {'connected' if look.connected else 'away'}")
    if old.owner == "GROUP" and look.lifecycle != "InService":
        return Problem(f"the group shows it as {look.lifecycle or 'no member'}")
    if old.gpus_expected is not None and len(registered) != old.gpus_expected:
        return Problem(f"{len(registered)} of {old.gpus_expected} GPUs registered")
    return _gpus(old, new)


def _gpus(old: Instance, new: Instance) -> Problem | None:
    if old.node_seen_at is None:
        return None  # this fleet runs no reporter: ECS's registration is all there is
    if new.node_seen_at is None:
        return Problem("its reporter has not reported yet")
    if clock.now() - new.node_seen_at > max(clock.scaled(120), timedelta(seconds=30)):
        return Problem("its reporter fell silent")
    names = set(old.gpus.exclude(name="").values_list("name", flat=True))
    others = set(new.gpus.exclude(name="").values_list("name", flat=True)) - names
    if names and others:
        return Problem(f"other GPUs: {', '.join(sorted(others))}", final=True)
    seen = reread(new).assessment
    if seen.verdict == "HARDWARE":
        return Problem(f"it is broken too: {seen.why or ', '.join(seen.codes)}", final=True)
    if seen.verdict not in GOOD:
        return Problem(f"its evidence reads {seen.verdict}: {seen.why}")
    if fabric_starts(new):
        return Problem("the fabric of its GPUs has not come up yet")
    return None


def fabric_starts(machine: Instance) -> bool:
    """Its GPUs can't reach each other yet: no fault so soon after a boot, but nothing that works across them runs."""
    return Interval.objects.filter(instance=machine, name="FABRIC", value="starting", until=None).exists()


def _registered_gpus(container: dict) -> set[str]:
    for resource in container.get("registeredResources", []):
        if resource.get("name") == "GPU":
            return set(resource.get("stringSetValue", []))
    return set()


def _purchase(item: dict) -> str:
    return {"spot": "spot", "capacity-block": "capacity-block"}.get(item.get("InstanceLifecycle", ""), "on-demand")

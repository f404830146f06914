"""EC2: terminate, reboot, stop, start, tag, protect."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ec2_instances import pick, state
from healthboard.sandbox.calls.ec2_read import describe_capacity_reservation
from healthboard.sandbox.entities import Instance, Reservation
from healthboard.sandbox.hardware import TYPES
from healthboard.sandbox.launch import PENDING_S, move_to_new_host, stop, terminate
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.ticks.instances import begin_reboot
from healthboard.sandbox.world import World


def _dry(p: dict[str, Any]) -> None:
    if p.get("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")


def _not_managed(rows: list[Instance]) -> None:
    """What ECS launched for itself belongs to ECS (which calls it refuses is not published; all here)."""
    for i in rows:
        if i.operator:
            raise AwsError("UnsupportedOperation", f"The instance '{i.id}' is managed by {i.operator}.")


def terminate_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    rows = pick(world, p["InstanceIds"])
    _not_managed(rows)
    for i in rows:
        if i.protected and i.state not in ("shutting-down", "terminated"):
            raise AwsError(
                "OperationNotPermitted",
                f"The instance '{i.id}' may not be terminated. Modify its 'disableApiTermination' instance attribute "
                "and try again.",
            )
    _dry(p)
    before = {i.id: i.state for i in rows}
    for i in rows:
        terminate(world, i)
    return {"TerminatingInstances": [_change(i, before) for i in rows]}


def _change(i: Instance, before: dict[str, str]) -> dict[str, Any]:
    return {"InstanceId": i.id, "PreviousState": state(before[i.id]), "CurrentState": state(i.state)}


def _expect(rows: list[Instance], allowed: tuple[str, ...], verb: str) -> None:
    for i in rows:
        if i.state not in allowed:
            raise AwsError(
                "IncorrectInstanceState", f"The instance '{i.id}' is not in a state from which it can be {verb}."
            )


def reboot_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    rows = pick(world, p["InstanceIds"])
    _not_managed(rows)
    _expect(rows, ("running",), "rebooted")
    _dry(p)
    for i in rows:
        begin_reboot(world, i)
    return {}


def stop_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    rows = pick(world, p["InstanceIds"])
    _not_managed(rows)
    _expect(rows, ("pending", "running", "stopping", "stopped"), "stopped")
    if any(i.market == "spot" and not i.spot.get("persistent") for i in rows):
        raise AwsError("UnsupportedOperation", "A one-time Spot Instance cannot be stopped.")
    _dry(p)
    before = {i.id: i.state for i in rows}
    for i in rows:
        if i.state in ("pending", "running"):
            stop(world, i)
    return {"StoppingInstances": [_change(i, before) for i in rows]}


def start_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    rows = pick(world, p["InstanceIds"])
    _not_managed(rows)
    _expect(rows, ("stopped", "pending", "running"), "started")
    _dry(p)
    before = {i.id: i.state for i in rows}
    for i in rows:
        if i.state == "stopped":
            move_to_new_host(world, i)
            i.state, i.until, i.launched_at = "pending", world.after(PENDING_S), world.now()
    return {"StartingInstances": [_change(i, before) for i in rows]}


def create_tags(world: World, p: dict[str, Any]) -> dict[str, Any]:
    new = {t["Key"]: t.get("Value", "") for t in p["Tags"]}
    if any(key.startswith("aws:") for key in new):
        raise AwsError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
    for entity in _resources(world, p["Resources"]):
        if len({**entity.tags, **new}) > 50:
            raise AwsError("TagLimitExceeded", "The maximum number of Tags for a resource has been reached")
        entity.tags = {**entity.tags, **new}
    return {}


def delete_tags(world: World, p: dict[str, Any]) -> dict[str, Any]:
    wanted = p.get("Tags") or []
    for entity in _resources(world, p["Resources"]):
        entity.tags = {
            k: v
            for k, v in entity.tags.items()
            if not any(t.get("Key") == k and t.get("Value") in (None, v) for t in wanted)
            and (wanted or k[:4] == "aws:")
        }
    return {}


def _resources(world: World, ids: list[str]) -> list[Any]:
    found: list[Any] = []
    for id_ in ids:
        if id_.startswith("i-"):
            found += pick(world, [id_])
        elif id_ in world.templates:
            found.append(world.templates[id_])
        else:
            raise AwsError("InvalidID", f"The ID '{id_}' is not valid")
    return found


def create_capacity_reservation(world: World, p: dict[str, Any]) -> dict[str, Any]:
    if p["InstanceType"] not in TYPES or p.get("AvailabilityZone") not in world.zones:
        raise AwsError("InvalidParameterValue", "A known instance type and availability zone are needed.")
    made = world.add(
        Reservation(
            id="cr-" + world.new_hex("reservation", 17),
            type=p["InstanceType"],
            zone=p["AvailabilityZone"],
            total=p["InstanceCount"],
            created_at=world.now(),
        )
    )
    return {"CapacityReservation": describe_capacity_reservation(world, made)}


def modify_instance_attribute(world: World, p: dict[str, Any]) -> dict[str, Any]:
    (i,) = pick(world, [p["InstanceId"]])
    if "DisableApiTermination" in p:
        i.protected = bool(p["DisableApiTermination"].get("Value"))
    elif p.get("Attribute") == "disableApiTermination":
        i.protected = str(p.get("Value")).lower() == "true"
    else:
        raise AwsError("UnsupportedOperation", "The sandbox changes disableApiTermination only.")
    return {}

"""EC2 RunInstances: launch templates, idempotent tokens, capacity."""

from __future__ import annotations

import json
from typing import Any

from healthboard.sandbox.calls.ec2_instances import describe
from healthboard.sandbox.calls.ec2_read import find_template, reserved, resolve_version
from healthboard.sandbox.entities import Instance, Template, Token
from healthboard.sandbox.hardware import TYPES
from healthboard.sandbox.launch import launch, short_of, shortage_text, zone_of_subnet
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World


def run_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    low, high = p["MinCount"], p["MaxCount"]
    if low < 1 or high < low:
        raise AwsError("InvalidParameterValue", "The maximum count must not be below the minimum, which is at least 1")
    token = p.get("ClientToken", "")
    if len(token) > 64 or not token.isascii():
        raise AwsError("InvalidParameterValue", "ClientToken: up to 64 ASCII characters")
    known = world.tokens.get(token) if token else None
    fingerprint = json.dumps(p, sort_keys=True, default=str)
    if known is not None:
        if known.params != fingerprint:
            raise AwsError(
                "IdempotentParameterMismatch",
                f"Arguments on this idempotent request are inconsistent with arguments used in previous request(s). "
                f"ClientToken: {token}",
            )
        return _answer(world, [world.instances[i] for i in known.instances])
    template, version, data = _resolve(world, p)
    _combined(data)
    zone = _zone(world, data)
    type_ = data.get("InstanceType")
    if type_ not in TYPES:
        raise AwsError("InvalidParameterValue", f"Invalid value '{type_}' for InstanceType.")
    if not data.get("ImageId"):
        raise AwsError("MissingParameter", "The request must contain the parameter ImageId")
    reservation = _reservation(world, data, type_, high)
    if p.get("DryRun"):
        raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
    if reservation is None and short_of(world, type_, zone):
        raise AwsError("InsufficientInstanceCapacity", shortage_text(world, type_, zone))
    made = [
        launch(
            world, type_=type_, zone=zone, image=data["ImageId"], tags=_tags(p, data), template=template,
            version=version, data=data.get("UserData", ""), client_token=token,
            protected=bool(data.get("DisableApiTermination")), reservation=reservation, **_market(world, data),
        )
        for _ in range(high)
    ]  # fmt: skip
    if token:
        world.add(Token(id=token, params=fingerprint, instances=[i.id for i in made], at=world.now()))
    return _answer(world, made)


def _answer(world: World, made: list[Instance]) -> dict[str, Any]:
    return {
        "ReservationId": "r-" + made[0].id[2:],
        "OwnerId": world.account,
        "Instances": [describe(world, i) for i in made],
    }


def _resolve(world: World, p: dict[str, Any]) -> tuple[Template | None, str | None, dict[str, Any]]:
    """The request over the template version: (template, version, merged launch data)."""
    spec = p.get("LaunchTemplate")
    if not spec:
        return None, None, dict(p)
    template = find_template(world, spec.get("LaunchTemplateId"), spec.get("LaunchTemplateName"))
    version = resolve_version(template, spec.get("Version"))
    data = {
        **template.versions[version],
        **{k: v for k, v in p.items() if k not in ("TagSpecifications", "LaunchTemplate")},
    }
    data["TagSpecifications"] = template.versions[version].get("TagSpecifications", [])
    return template, version, data


def _tags(p: dict[str, Any], data: dict[str, Any]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for spec in [*data.get("TagSpecifications", []), *p.get("TagSpecifications", [])]:
        if spec.get("ResourceType") == "instance":
            tags.update({t["Key"]: t.get("Value", "") for t in spec.get("Tags", [])})
    if any(key.startswith("aws:") for key in tags):
        raise AwsError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
    return tags


def _combined(data: dict[str, Any]) -> None:
    """Refuses what EC2 does not take beside network interfaces, whichever of request and template names which."""
    interfaces = data.get("NetworkInterfaces") or ()
    for name, words in (
        ("SubnetId", "subnet ID"), ("SecurityGroupIds", "security groups"), ("SecurityGroups", "security groups"),
        ("PrivateIpAddress", "private IP address"),
    ):  # fmt: skip
        if interfaces and data.get(name):
            raise AwsError(
                "InvalidParameterCombination",
                f"Network interfaces and an instance-level {words} may not be specified on the same request",
            )
    if any(one.get("DeviceIndex") is None for one in interfaces):
        raise AwsError("InvalidParameterValue", "Each network interface requires a device index.")


def _zone(world: World, data: dict[str, Any]) -> str:
    """Where it runs: as its subnets say, or its zone, or EC2 chooses."""
    named = [data.get("SubnetId"), *(n.get("SubnetId") for n in data.get("NetworkInterfaces") or ())]
    zones = {subnet: zone_of_subnet(world, subnet) for subnet in named if subnet}
    for subnet, zone in zones.items():
        if zone is None:
            raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
    _one_network(world, data)
    if zones:
        return next(filter(None, zones.values()))
    zone = (data.get("Placement") or {}).get("AvailabilityZone")
    if zone:
        if zone not in world.zones:
            raise AwsError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        return zone
    return world.zones[world.count("zone") % len(world.zones)]


def _one_network(world: World, data: dict[str, Any]) -> None:
    """Security groups belong to the fleet's VPC: without a subnet, EC2 goes into the account's default VPC."""
    if not world.config.own_vpc:
        return
    outside = [] if data.get("SubnetId") or data.get("NetworkInterfaces") else [data.get("SecurityGroupIds")]
    outside += [
        one.get("Groups") for one in data.get("NetworkInterfaces") or ()
        if not (one.get("SubnetId") or one.get("NetworkInterfaceId"))
    ]  # fmt: skip
    if groups := next(filter(None, outside), None):
        subnet = "subnet-" + world.seeded("default subnet")[:17]
        raise AwsError(
            "InvalidParameter", f"Security group {groups[0]} and subnet {subnet} belong to different networks."
        )


def _market(world: World, data: dict[str, Any]) -> dict[str, Any]:
    """As what it is bought: a Spot instance is started by a request of its own, which persists where the launch says so."""
    options = data.get("InstanceMarketOptions") or {}
    if options.get("MarketType") != "spot":
        return {}
    spot = options.get("SpotOptions") or {}
    persistent = spot.get("SpotInstanceType") == "persistent"
    if persistent and spot.get("InstanceInterruptionBehavior") not in ("stop", "hibernate"):
        raise AwsError(
            "InvalidParameterCombination",
            "Persistent Spot requests are only supported with the interruption behavior stop or hibernate.",
        )
    request = "sir-" + world.seeded("spot request", world.count("spot request"))[:8]
    return {"market": "spot", "spot": {"id": request, "persistent": persistent, "cancelled": False}}


def _reservation(world: World, data: dict[str, Any], type_: str, count: int) -> str | None:
    target = (data.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    id_ = target.get("CapacityReservationId")
    if not id_:
        return None
    reservation = world.reservations.get(id_)
    if reservation is None:
        raise AwsError("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{id_}' does not exist")
    if reservation.type != type_ or reservation.total - reserved(world, id_) < count:
        raise AwsError(
            "ReservationCapacityExceeded", f"The requested reservation {id_} does not have sufficient capacity."
        )
    return id_

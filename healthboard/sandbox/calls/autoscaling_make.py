"""Auto Scaling: making and deleting groups."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.autoscaling_read import find_group, validation
from healthboard.sandbox.calls.ec2_read import find_template, resolve_version
from healthboard.sandbox.entities import Group
from healthboard.sandbox.launch import terminate, zone_of_subnet
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World


def create_auto_scaling_group(world: World, p: dict[str, Any]) -> dict[str, Any]:
    name = p["AutoScalingGroupName"]
    if name in world.groups:
        raise AwsError("AlreadyExists", "AutoScalingGroup by this name already exists")
    low, high = p["MinSize"], p["MaxSize"]
    desired = p.get("DesiredCapacity", low)
    if not low <= desired <= high:
        raise validation(f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}")
    asked = p.get("LaunchTemplate") or {}
    template = find_template(world, asked.get("LaunchTemplateId"), asked.get("LaunchTemplateName"))
    version = asked.get("Version") or "$Default"
    resolve_version(template, version)
    world.add(
        Group(
            id=name, template=template.id, template_version=version, minimum=low, maximum=high, desired=desired,
            zones=_zones(world, p), created_at=world.now(),
            tags={t["Key"]: t.get("Value", "") for t in p.get("Tags") or ()},
        )
    )  # fmt: skip
    return {}


def _zones(world: World, p: dict[str, Any]) -> list[str]:
    zones = list(p.get("AvailabilityZones") or ())
    zones += [zone_of_subnet(world, s) or s for s in filter(None, (p.get("VPCZoneIdentifier") or "").split(","))]
    if not zones:
        raise validation("At least one Availability Zone or VPC Subnet is required.")
    for zone in zones:
        if zone not in world.zones:
            raise validation(f"Invalid availability zones or subnets: {zone}")
    return zones


def delete_auto_scaling_group(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    if group.members and not p.get("ForceDelete"):
        raise AwsError("ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances in it.")
    for one in group.members:
        terminate(world, world.instances[one], "Server.AutoScaling")
    world.remove(group)
    return {}

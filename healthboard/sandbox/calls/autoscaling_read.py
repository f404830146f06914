"""Auto Scaling: groups, their instances, what they did."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ecs_read import group_arn
from healthboard.sandbox.calls.paging import page
from healthboard.sandbox.entities import Activity, Group
from healthboard.sandbox.launch import subnet_of
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World

PROGRESS = {"InProgress": 50, "Successful": 100, "Failed": 100}


def validation(message: str) -> AwsError:
    return AwsError("ValidationError", message)


def find_group(world: World, name: str) -> Group:
    group = world.groups.get(name)
    if group is None:
        raise validation(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
    return group


def paged(p: dict[str, Any], rows: list[Any], default: int, high: int) -> tuple[list[Any], str | None]:
    size = p.get("MaxRecords") or default
    if not 1 <= size <= high:
        raise validation(f"MaxRecords must be between 1 and {high}")
    return page(rows, p.get("NextToken"), size, AwsError("InvalidNextToken", "The NextToken value is not valid."))


def describe_auto_scaling_groups(world: World, p: dict[str, Any]) -> dict[str, Any]:
    names = p.get("AutoScalingGroupNames")
    rows = [g for g in world.groups.values() if not names or g.id in names]
    for spec in p.get("Filters") or ():
        name, values = spec.get("Name", ""), spec.get("Values") or []
        if name.startswith("tag:"):
            rows = [g for g in rows if g.tags.get(name[4:]) in values]
        elif name == "tag-key":
            rows = [g for g in rows if set(g.tags) & set(values)]
        elif name == "tag-value":
            rows = [g for g in rows if set(g.tags.values()) & set(values)]
        else:
            raise validation(f"Filter type {name} is not correct.")
    rows, token = paged(p, rows, 50, 100)
    return {"AutoScalingGroups": [_group(world, g) for g in rows], "NextToken": token}


def _template(world: World, g: Group, version: str) -> dict[str, str]:
    template = world.templates[g.template]
    return {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "Version": version}


def _group(world: World, g: Group) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": g.id,
        "AutoScalingGroupARN": group_arn(world, g.id),
        "LaunchTemplate": _template(world, g, g.template_version),
        "MinSize": g.minimum,
        "MaxSize": g.maximum,
        "DesiredCapacity": g.desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": list(g.zones),
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 0,
        "Instances": [_member(world, g, i) for i in g.members if not g.members[i]["state"].startswith("Warmed")],
        "CreatedTime": g.created_at,
        "SuspendedProcesses": [
            {"ProcessName": name, "SuspensionReason": "User suspended at " + name} for name in g.suspended
        ],
        "VPCZoneIdentifier": ",".join(subnet_of(world, z) for z in g.zones),
        "EnabledMetrics": [],
        "Tags": [
            {
                "ResourceId": g.id,
                "ResourceType": "auto-scaling-group",
                "Key": k,
                "Value": v,
                "PropagateAtLaunch": not k.startswith("aws:"),
            }
            for k, v in g.tags.items()
        ],
        "TerminationPolicies": ["Default"],
        "NewInstancesProtectedFromScaleIn": False,
        "CapacityRebalance": False,
    }


def _member(world: World, g: Group, instance: str) -> dict[str, Any]:
    member, i = g.members[instance], world.instances[instance]
    return {
        "InstanceId": instance,
        "InstanceType": i.type,
        "AvailabilityZone": i.zone,
        "LifecycleState": member["state"],
        "HealthStatus": member["health"],
        "LaunchTemplate": _template(world, g, member["version"]),
        "ProtectedFromScaleIn": member["protected"],
    }


def describe_auto_scaling_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    ids = p.get("InstanceIds")
    rows = [(g, i) for g in world.groups.values() for i in g.members if not ids or i in ids]
    rows, token = paged(p, rows, 50, 50)
    # this call writes the health in capitals, DescribeAutoScalingGroups does not
    return {
        "AutoScalingInstances": [
            {
                **_member(world, g, i),
                "AutoScalingGroupName": g.id,
                "HealthStatus": g.members[i]["health"].upper(),
            }
            for g, i in rows
        ],
        "NextToken": token,
    }


def describe_scaling_activities(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """Newest first."""
    name, ids = p.get("AutoScalingGroupName"), p.get("ActivityIds")
    if name:
        find_group(world, name)
    rows = [a for a in world.activities.values() if (not name or a.group == name) and (not ids or a.id in ids)]
    rows.sort(key=lambda a: -a.order)
    rows, token = paged(p, rows, 100, 100)
    return {"Activities": [describe_activity(world, a) for a in rows], "NextToken": token}


def describe_activity(world: World, a: Activity) -> dict[str, Any]:
    zone = f'{{"Subnet ID":"{subnet_of(world, a.zone)}","Availability Zone":"{a.zone}"}}'
    return {
        "ActivityId": a.id,
        "AutoScalingGroupName": a.group,
        "AutoScalingGroupARN": group_arn(world, a.group),
        "Description": a.description,
        "Cause": a.cause,
        "StartTime": a.started_at,
        "EndTime": a.ended_at,
        "StatusCode": a.status,
        "StatusMessage": a.message or None,
        "Progress": PROGRESS.get(a.status, 0),
        "Details": zone,
    }


def describe_lifecycle_hooks(world: World, p: dict[str, Any]) -> dict[str, Any]:
    return {"LifecycleHooks": list(find_group(world, p["AutoScalingGroupName"]).hooks)}


def describe_instance_refreshes(world: World, p: dict[str, Any]) -> dict[str, Any]:
    rows, token = paged(p, list(find_group(world, p["AutoScalingGroupName"]).refreshes), 50, 100)
    return {"InstanceRefreshes": rows, "NextToken": token}


def describe_warm_pool(world: World, p: dict[str, Any]) -> dict[str, Any]:
    find_group(world, p["AutoScalingGroupName"])
    return {"Instances": []}

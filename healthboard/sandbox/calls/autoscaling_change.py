"""Auto Scaling: Standby, detach, attach, terminate, desired capacity, suspended processes.

Desired capacity counts the members that are not in Standby: entering with decrement lowers it, leaving raises it.
"""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.activities import begin
from healthboard.sandbox.calls.autoscaling_read import describe_activity, find_group, validation
from healthboard.sandbox.entities import Activity, Group
from healthboard.sandbox.launch import terminate
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.protocol.serialize import iso
from healthboard.sandbox.ticks.groups import MOVE_S, set_member
from healthboard.sandbox.world import World

PROCESSES = (
    "Launch", "Terminate", "AddToLoadBalancer", "AlarmNotification", "AZRebalance", "HealthCheck", "InstanceRefresh",
    "ReplaceUnhealthy", "ScheduledActions",
)  # fmt: skip


def _members(group: Group, ids: list[str], states: tuple[str, ...], expected: str) -> list[str]:
    if not ids:
        raise validation("The set of instances may not be empty")
    for id_ in ids:
        if id_ not in group.members:
            raise validation(f"The instance {id_} is not part of Auto Scaling group {group.id}.")
        if group.members[id_]["state"] not in states:
            raise validation(f"The instance {id_} is not in {expected}.")
    return list(dict.fromkeys(ids))


def _sizes(group: Group, what: str) -> str:
    return (
        f"AutoScalingGroup {group.id} has min-size={group.minimum}, max-size={group.maximum}, and "
        f"desired-size={group.desired}. To {what}, please update the AutoScalingGroup sizes appropriately."
    )


def _lower(group: Group, by: int, what: str) -> None:
    if group.desired - by < group.minimum:
        raise validation(_sizes(group, what))
    group.desired -= by


def _raise(group: Group, by: int, what: str) -> None:
    if group.desired + by > group.maximum:
        raise validation(_sizes(group, what))
    group.desired += by


def _because(world: World, group: Group, verb: str, before: int) -> str:
    text = f"At {iso(world.now())} instance was {verb} in response to a user request"
    if group.desired != before:
        word = "shrinking" if group.desired < before else "increasing"
        text += f", {word} the capacity from {before} to {group.desired}"
    return text + "."


def enter_standby(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    ids = _members(group, p.get("InstanceIds") or [], ("InService",), "InService")
    before = group.desired
    if p["ShouldDecrementDesiredCapacity"]:
        _lower(group, len(ids), f"place into standby {len(ids)} instance{'s' if len(ids) > 1 else ''}")
    done = []
    for id_ in ids:
        set_member(group, id_, state="EnteringStandby", until=world.after(MOVE_S))
        cause = _because(world, group, "moved to standby", before)
        done.append(begin(world, group, "enter_standby", id_, f"Moving EC2 instance to Standby: {id_}", cause))
    return _activities(world, done)


def exit_standby(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    ids = _members(group, p.get("InstanceIds") or [], ("Standby",), "Standby")
    for id_ in ids:
        if world.instances[id_].state != "running":
            raise validation(f"The instance {id_} is not in a running state.")
    before = group.desired
    _raise(group, len(ids), f"remove from standby {len(ids)} instance{'s' if len(ids) > 1 else ''}")
    done = []
    for id_ in ids:
        set_member(group, id_, state="Pending", until=world.after(MOVE_S), bad_since=None)
        cause = _because(world, group, "moved out of standby", before)
        done.append(begin(world, group, "exit_standby", id_, f"Moving EC2 instance out of Standby: {id_}", cause))
    return _activities(world, done)


def detach_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    ids = _members(group, p.get("InstanceIds") or [], ("InService", "Standby"), "InService or Standby")
    before = group.desired
    if p["ShouldDecrementDesiredCapacity"]:
        _lower(group, len(ids), f"detach {len(ids)} instance{'s' if len(ids) > 1 else ''}")
    done = []
    for id_ in ids:
        set_member(group, id_, state="Detaching", until=world.after(MOVE_S))
        cause = _because(world, group, "detached", before)
        done.append(begin(world, group, "detach", id_, f"Detaching EC2 instance: {id_}", cause))
    return _activities(world, done)


def attach_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    ids = list(dict.fromkeys(p.get("InstanceIds") or []))
    for id_ in ids:
        if id_ not in world.instances or world.instances[id_].state != "running":
            raise validation(f"Invalid Instance ID(s): [{id_}]: not in a running state")
        other = world.group_of(id_)
        if other is not None:
            raise validation(f"The instance {id_} is already part of Auto Scaling group: {other.id}")
    before = group.desired
    _raise(group, len(ids), f"attach {len(ids)} instance{'s' if len(ids) > 1 else ''}")
    for id_ in ids:
        instance = world.instances[id_]
        instance.tags = {**instance.tags, "aws:autoscaling:groupName": group.id}
        group.members = {
            **group.members,
            id_: {"state": "Pending", "until": world.after(MOVE_S), "protected": False, "health": "Healthy",
                  "version": instance.template_version or group.template_version},
        }  # fmt: skip
        begin(world, group, "attach", id_, f"Attaching an existing EC2 instance: {id_}",
              _because(world, group, "attached", before))  # fmt: skip
    return {}


def terminate_instance_in_auto_scaling_group(world: World, p: dict[str, Any]) -> dict[str, Any]:
    id_ = p.get("InstanceId") or next(iter(p.get("InstanceIds") or ()), "")
    group = world.group_of(id_)
    if group is None:
        raise validation(f"Instance Id not found - No managed instance found for instance ID: {id_}")
    member = group.members[id_]
    if member["state"] in ("Terminating", "Detaching"):
        raise validation(f"The instance {id_} is already {member['state'].lower()}.")
    before = group.desired
    if p["ShouldDecrementDesiredCapacity"]:
        if group.desired - 1 < group.minimum:
            raise validation(
                f"Currently, desiredSize equals minSize ({group.minimum}). Terminating instance without replacement will "
                "violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower "
                "group's min size."
            )
        group.desired -= 1
    set_member(group, id_, state="Terminating", until=None)
    terminate(world, world.instances[id_], "Server.AutoScaling")
    cause = _because(world, group, "taken out of service", before)
    return {"Activity": describe_activity(
        world, begin(world, group, "terminate", id_, f"Terminating EC2 instance: {id_}", cause)
    )}  # fmt: skip


def set_desired_capacity(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    wanted = p["DesiredCapacity"]
    if wanted < group.minimum:
        raise validation(
            f"New SetDesiredCapacity value {wanted} is below min value {group.minimum} for the AutoScalingGroup."
        )
    if wanted > group.maximum:
        raise validation(
            f"New SetDesiredCapacity value {wanted} is above max value {group.maximum} for the AutoScalingGroup."
        )
    group.desired = wanted
    return {}


def suspend_processes(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    group.suspended = sorted({*group.suspended, *_processes(p)})
    return {}


def resume_processes(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    group.suspended = sorted(set(group.suspended) - set(_processes(p)))
    return {}


def _processes(p: dict[str, Any]) -> list[str]:
    names = p.get("ScalingProcesses") or list(PROCESSES)
    for name in names:
        if name not in PROCESSES:
            raise validation(f"Invalid Scaling Process Type: {name}")
    return names


def set_instance_protection(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    for id_ in _members(group, p["InstanceIds"], ("InService", "Standby", "Pending"), "InService"):
        set_member(group, id_, protected=bool(p["ProtectedFromScaleIn"]))
    return {}


def set_instance_health(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = world.group_of(p["InstanceId"])
    if group is None:
        raise validation(f"Instance Id not found - No managed instance found for instance ID: {p['InstanceId']}")
    if p["HealthStatus"] not in ("Healthy", "Unhealthy"):
        raise validation("HealthStatus must be Healthy or Unhealthy")
    said = world.now() if p["HealthStatus"] == "Unhealthy" else None
    set_member(group, p["InstanceId"], said_unhealthy=said)
    return {}


def start_instance_refresh(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """Stays InProgress, replacing nothing, until it is cancelled: enough for those who must wait for one."""
    group = find_group(world, p["AutoScalingGroupName"])
    if any(r["Status"] == "InProgress" for r in group.refreshes):
        raise AwsError("InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks this one.")
    refresh = {
        "InstanceRefreshId": world.new_uuid("refresh"),
        "AutoScalingGroupName": group.id,
        "Status": "InProgress",
        "StartTime": world.now(),
        "PercentageComplete": 0,
    }
    group.refreshes = [refresh, *group.refreshes]
    return {"InstanceRefreshId": refresh["InstanceRefreshId"]}


def cancel_instance_refresh(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    running = next((r for r in group.refreshes if r["Status"] == "InProgress"), None)
    if running is None:
        raise AwsError("ActiveInstanceRefreshNotFound", "No in progress or pending Instance Refresh found.")
    over = {**running, "Status": "Cancelled", "EndTime": world.now()}
    group.refreshes = [over if r is running else r for r in group.refreshes]
    return {"InstanceRefreshId": running["InstanceRefreshId"]}


def create_or_update_tags(world: World, p: dict[str, Any]) -> dict[str, Any]:
    for tag in p["Tags"]:
        group = find_group(world, tag["ResourceId"])
        group.tags = {**group.tags, tag["Key"]: tag.get("Value", "")}
    return {}


def delete_tags(world: World, p: dict[str, Any]) -> dict[str, Any]:
    for tag in p["Tags"]:
        group = find_group(world, tag["ResourceId"])
        group.tags = {k: v for k, v in group.tags.items() if k != tag["Key"]}
    return {}


def update_auto_scaling_group(world: World, p: dict[str, Any]) -> dict[str, Any]:
    group = find_group(world, p["AutoScalingGroupName"])
    low, high = p.get("MinSize", group.minimum), p.get("MaxSize", group.maximum)
    desired = p.get("DesiredCapacity", min(max(group.desired, low), high))
    if not low <= desired <= high:
        raise validation(f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}")
    group.minimum, group.maximum, group.desired = low, high, desired
    return {}


def _activities(world: World, done: list[Activity]) -> dict[str, Any]:
    return {"Activities": [describe_activity(world, a) for a in done]}

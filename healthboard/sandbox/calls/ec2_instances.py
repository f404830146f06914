"""EC2: what instances are and how they do."""

from __future__ import annotations

import re
from typing import Any

from healthboard.sandbox.calls.paging import ec2_filter, ec2_page, tag_list
from healthboard.sandbox.entities import Instance
from healthboard.sandbox.health import checks
from healthboard.sandbox.launch import subnet_of
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World

STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}


def state(name: str) -> dict[str, Any]:
    return {"Code": STATES[name], "Name": name}


def pick(world: World, ids: list[str] | None) -> list[Instance]:
    """The named instances, or all. Raises as EC2 does: one bad id fails the whole call."""
    if not ids:
        return [i for i in world.instances.values() if not i.gone]
    for id_ in ids:
        if not re.fullmatch(r"i-[0-9a-f]{8,17}", id_):
            raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{id_}"')
    missing = [id_ for id_ in ids if id_ not in world.instances or world.instances[id_].gone]
    if missing:
        noun, verb = ("ID", "does") if len(missing) == 1 else ("IDs", "do")
        raise AwsError("InvalidInstanceID.NotFound", f"The instance {noun} '{', '.join(missing)}' {verb} not exist")
    return [world.instances[id_] for id_ in dict.fromkeys(ids)]


FIELDS: dict[str, Any] = {
    "instance-id": lambda i: i.id,
    "instance-state-name": lambda i: i.state,
    "instance-state-code": lambda i: STATES[i.state],
    "instance-type": lambda i: i.type,
    "availability-zone": lambda i: i.zone,
    "image-id": lambda i: i.image,
    "private-ip-address": lambda i: i.private_ip,
    "client-token": lambda i: i.client_token or None,
    "instance-lifecycle": lambda i: i.market,
}


def describe_instances(world: World, p: dict[str, Any]) -> dict[str, Any]:
    ids = p.get("InstanceIds")
    rows = ec2_filter(p, pick(world, ids), FIELDS, lambda i: i.tags)
    rows, token = ec2_page(p, rows, bool(ids))
    return {
        "Reservations": [
            {
                "ReservationId": "r-" + i.id[2:],
                "OwnerId": world.account,
                "Groups": [],
                "Instances": [describe(world, i)],
            }
            for i in rows
        ],
        "NextToken": token,
    }


def describe(world: World, i: Instance) -> dict[str, Any]:
    ended = i.state == "terminated"
    return {
        "InstanceId": i.id,
        "ImageId": i.image,
        "InstanceType": i.type,
        "LaunchTime": i.launched_at,
        "State": state(i.state),
        "Placement": {"AvailabilityZone": i.zone, "GroupName": "", "Tenancy": "default"},
        "PrivateIpAddress": None if ended else i.private_ip,
        "PrivateDnsName": "" if ended else f"ip-{i.private_ip.replace('.', '-')}.ec2.internal",
        "SubnetId": None if ended else subnet_of(world, i.zone),
        "VpcId": None if ended else "vpc-" + world.seeded("vpc")[:17],
        "Architecture": "x86_64",
        "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/xvda",
        "VirtualizationType": "hvm",
        "Hypervisor": "xen",
        "EbsOptimized": True,
        "ClientToken": i.client_token,
        "AmiLaunchIndex": 0,
        "InstanceLifecycle": i.market,
        "SpotInstanceRequestId": i.spot.get("id"),
        "CapacityReservationId": i.reservation,
        "Monitoring": {"State": "disabled"},
        "MetadataOptions": {"State": "applied", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "MaintenanceOptions": {"AutoRecovery": "default", "RebootMigration": "default"},
        "Operator": {"Managed": bool(i.operator), "Principal": i.operator},
        "StateTransitionReason": i.transition_reason,
        "StateReason": {"Code": i.state_reason[0], "Message": i.state_reason[1]} if i.state_reason else None,
        "Tags": tag_list(i.tags),
    }


def describe_instance_status(world: World, p: dict[str, Any]) -> dict[str, Any]:
    ids = p.get("InstanceIds")
    if ids and len(ids) > 100:
        raise AwsError("InvalidParameterValue", "You can specify up to 100 instance IDs")
    now = world.now()
    rows = pick(world, ids)
    if not p.get("IncludeAllInstances"):
        rows = [i for i in rows if i.state == "running"]
    fields = {
        **FIELDS,
        "system-status.status": lambda i: checks(i, now)["system"][0],
        "system-status.reachability": lambda i: _reach(checks(i, now)["system"][0]),
        "instance-status.status": lambda i: checks(i, now)["instance"][0],
        "instance-status.reachability": lambda i: _reach(checks(i, now)["instance"][0]),
        "attached-ebs-status.status": lambda i: checks(i, now)["ebs"][0],
        "event.code": lambda i: [e["Code"] for e in i.events],
    }
    rows = ec2_filter(p, rows, fields, lambda i: i.tags)
    rows, token = ec2_page(p, rows, bool(ids))
    return {"InstanceStatuses": [_status(i, now) for i in rows], "NextToken": token}


def _status(i: Instance, now: float) -> dict[str, Any]:
    result = checks(i, now)
    return {
        "InstanceId": i.id,
        "AvailabilityZone": i.zone,
        "InstanceState": state(i.state),
        "SystemStatus": _summary(*result["system"]),
        "InstanceStatus": _summary(*result["instance"]),
        "AttachedEbsStatus": _summary(*result["ebs"]),
        "Operator": {"Managed": bool(i.operator), "Principal": i.operator},
        "Events": [dict(e) for e in i.events] or None,
    }


def _reach(status: str) -> str:
    return {"ok": "passed", "impaired": "failed"}.get(status, status)


def _summary(status: str, since: float | None) -> dict[str, Any]:
    if status == "not-applicable":
        return {"Status": status}
    detail = {"Name": "reachability", "Status": _reach(status)}
    return {"Status": status, "Details": [{**detail, "ImpairedSince": since} if since is not None else detail]}

"""EC2: the requests that Spot instances were started by."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.paging import ec2_filter, ec2_page
from healthboard.sandbox.entities import Instance
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World


def describe_spot_instance_requests(world: World, p: dict[str, Any]) -> dict[str, Any]:
    ids = p.get("SpotInstanceRequestIds")
    fields = {"spot-instance-request-id": lambda i: i.spot["id"], "instance-id": lambda i: i.id, "state": _state}
    rows = ec2_filter(p, _of(world, ids), fields, lambda i: {})
    rows, token = ec2_page(p, rows, bool(ids))
    return {"SpotInstanceRequests": [_told(i) for i in rows], "NextToken": token}


def cancel_spot_instance_requests(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """The instance keeps running; when it ends, nothing is started for it any more."""
    rows = _of(world, p["SpotInstanceRequestIds"])
    for i in rows:
        i.spot = {**i.spot, "cancelled": True}
    return {
        "CancelledSpotInstanceRequests": [{"SpotInstanceRequestId": i.spot["id"], "State": "cancelled"} for i in rows]
    }


def _of(world: World, ids: list[str] | None) -> list[Instance]:
    """The newest instance of each request that was asked for; of all, where none is named."""
    newest = {i.spot["id"]: i for i in sorted(world.instances.values(), key=lambda i: i.launched_at) if i.spot}
    if missing := [id_ for id_ in ids or () if id_ not in newest]:
        raise AwsError(
            "InvalidSpotInstanceRequestID.NotFound", f"The spot instance request ID '{missing[0]}' does not exist"
        )
    return [newest[id_] for id_ in ids] if ids else list(newest.values())


def _state(i: Instance) -> str:
    if i.spot["cancelled"]:
        return "cancelled"
    if i.state in ("shutting-down", "terminated"):
        return "open" if i.spot["persistent"] else "closed"
    return "active"


def _told(i: Instance) -> dict[str, Any]:
    return {
        "SpotInstanceRequestId": i.spot["id"],
        "Type": "persistent" if i.spot["persistent"] else "one-time",
        "State": _state(i),
        "InstanceId": i.id,
        "CreateTime": i.launched_at,
        "LaunchedAvailabilityZone": i.zone,
        "ProductDescription": "Linux/UNIX",
        "InstanceInterruptionBehavior": "stop" if i.spot["persistent"] else "terminate",
    }

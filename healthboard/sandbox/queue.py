"""The place's queue, and what EventBridge puts into it: envelopes as AWS shapes them, at least once, in any order."""

from __future__ import annotations

import json
from email.utils import formatdate
from typing import Any

from healthboard.sandbox.entities import Instance, Message
from healthboard.sandbox.hardware import digest
from healthboard.sandbox.protocol.serialize import iso
from healthboard.sandbox.world import World

NAME = "healthboard-events"
#: SQS keeps messages for days; where nobody reads, the oldest go first
MOST = 5000
HEALTH_TYPE = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
ISSUE_TYPE = "AWS_EC2_OPERATIONAL_ISSUE"


def send(world: World, body: str) -> Message:
    """A message that anybody may send; visible at once."""
    while len(world.messages) >= MOST:
        world.remove(next(iter(world.messages.values())))
    now = world.now()
    return world.add(Message(id=world.new_uuid("message"), text=body, sent_at=now, visible_at=now))


def put(world: World, detail_type: str, source: str, detail: dict[str, Any], *resources: str) -> Message:
    """One event that the rule of the place lets through."""
    envelope = {
        "version": "0",
        "id": world.new_uuid("event"),
        "detail-type": detail_type,
        "source": source,
        "account": world.account,
        "time": iso(world.now())[:19] + "Z",
        "region": world.region,
        "resources": list(resources),
        "detail": detail,
    }
    return send(world, json.dumps(envelope, separators=(",", ":")))


def instance_arn(world: World, instance: Instance) -> str:
    return world.arn("ec2", f"instance/{instance.id}")


def spot_interruption(world: World, instance: Instance) -> None:
    detail = {"instance-id": instance.id, "instance-action": "terminate"}
    put(world, "EC2 Spot Instance Interruption Warning", "aws.ec2", detail, instance_arn(world, instance))


def rebalance(world: World, instance: Instance) -> None:
    detail = {"instance-id": instance.id}
    put(world, "EC2 Instance Rebalance Recommendation", "aws.ec2", detail, instance_arn(world, instance))


def block_ending(world: World, instance: Instance) -> None:
    """It names the Block, never the machines in it. A machine outside a Block is told of by its own ARN."""
    block = instance.reservation or "cr-" + digest(world.config.seed, "block", instance.id)[:17]
    arns = [world.arn("ec2", f"capacity-reservation/{block}")]
    if instance.reservation is None:
        arns.append(instance_arn(world, instance))
    detail = {"capacity-reservation-id": block, "end-date": iso(world.after(40 * 60))}
    put(world, "Capacity Block Reservation Expiration Warning", "aws.ec2", detail, *arns)


NOTICES = {"spot": spot_interruption, "rebalance": rebalance, "block": block_ending}


def retirement(world: World, instance: Instance, event: dict[str, Any], *, closed: bool = False) -> None:
    """What AWS Health says beside EC2's scheduled event `event`."""
    key = event["InstanceEventId"].removeprefix("instance-event-")
    detail = {
        "eventArn": f"arn:aws:health:{world.region}::event/EC2/{HEALTH_TYPE}/{HEALTH_TYPE}_{key}",
        "service": "EC2",
        "eventTypeCode": HEALTH_TYPE,
        "eventTypeCategory": "scheduledChange",
        "eventScopeCode": "ACCOUNT_SPECIFIC",
        "statusCode": "closed" if closed else "upcoming",
        "eventRegion": world.region,
        "startTime": iso(event["NotBefore"]),
        "eventDescription": [{"language": "en_US", "latestDescription": event["Description"]}],
        "affectedEntities": [{"entityValue": instance.id, "status": "RESOLVED" if closed else "PENDING"}],
    }
    put(world, "AWS Health Event", "aws.health", detail, instance.id)


def zone_issue(world: World, instance: Instance, *, begun: float, closed: bool = False) -> None:
    """What AWS Health says of the zone of this instance, naming none in it."""
    detail = {
        "eventArn": f"arn:aws:health:{world.region}::event/EC2/{ISSUE_TYPE}/{ISSUE_TYPE}_{digest(instance.id, begun)[:17]}",
        "service": "EC2",
        "eventTypeCode": ISSUE_TYPE,
        "eventTypeCategory": "issue",
        "eventScopeCode": "PUBLIC",
        "statusCode": "closed" if closed else "open",
        "eventRegion": world.region,
        "startTime": formatdate(begun, usegmt=True),
        "eventDescription": [{"language": "en_US", "latestDescription": f"Increased error rates in {instance.zone}."}],
        "affectedEntities": [],
    }
    put(world, "AWS Health Event", "aws.health", detail)

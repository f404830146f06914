"""SQS: one queue in each place. A received message is invisible for a while and comes again unless it is deleted."""

from __future__ import annotations

import random
from hashlib import md5
from typing import Any

from healthboard.sandbox import queue
from healthboard.sandbox.entities import Message
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World

VISIBILITY_S = 30
MOST_VISIBILITY_S, MOST_WAIT_S, BATCH = 43200, 20, 10
#: share of deliveries after which the message stays visible: SQS promises at least once, not once
TWICE = 0.02


def get_queue_url(world: World, p: dict[str, Any]) -> dict[str, Any]:
    owner = p.get("QueueOwnerAWSAccountId") or world.account
    if p["QueueName"] != queue.NAME or owner != world.account:
        raise _no_queue()
    return {"QueueUrl": f"{world.sandbox.url}/{world.account}/{queue.NAME}"}


def list_queues(world: World, p: dict[str, Any]) -> dict[str, Any]:
    url = f"{world.sandbox.url}/{world.account}/{queue.NAME}"
    return {"QueueUrls": [url] if queue.NAME.startswith(p.get("QueueNamePrefix") or "") else []}


def get_queue_attributes(world: World, p: dict[str, Any]) -> dict[str, Any]:
    _queue(world, p)
    now = world.now()
    waiting = sum(1 for m in world.messages.values() if m.visible_at <= now)
    every = {
        "ApproximateNumberOfMessages": str(waiting),
        "ApproximateNumberOfMessagesNotVisible": str(len(world.messages) - waiting),
        "VisibilityTimeout": str(VISIBILITY_S),
        "QueueArn": world.arn("sqs", queue.NAME),
    }
    wanted = p.get("AttributeNames") or []
    return {"Attributes": {k: v for k, v in every.items() if "All" in wanted or k in wanted}}


def receive_message(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """At once with what there is; `dispatch` has waited before, outside the lock."""
    _queue(world, p)
    most = _within(p, "MaxNumberOfMessages", 1, BATCH, 1)
    hidden = _within(p, "VisibilityTimeout", 0, MOST_VISIBILITY_S, VISIBILITY_S)
    found = []
    for message in visible(world)[:most]:
        message.received += 1
        message.receipt = world.seeded("receipt", message.id, message.received)
        if random.Random(message.receipt).random() >= TWICE:
            message.visible_at = world.after(hidden)
        found.append(
            {
                "MessageId": message.id,
                "ReceiptHandle": f"{message.id}/{message.receipt}",
                "MD5OfBody": md5(message.text.encode(), usedforsecurity=False).hexdigest(),
                "Body": message.text,
                "Attributes": {
                    "ApproximateReceiveCount": str(message.received),
                    "SentTimestamp": str(int(message.sent_at * 1000)),
                },
            }
        )
    return {"Messages": found} if found else {}


def wait_of(p: dict[str, Any]) -> float:
    """Seconds that a long poll waits for a first message."""
    return min(max(p.get("WaitTimeSeconds") or 0, 0), MOST_WAIT_S)


def visible(world: World) -> list[Message]:
    now = world.now()
    return [m for m in world.messages.values() if m.visible_at <= now]


def delete_message(world: World, p: dict[str, Any]) -> dict[str, Any]:
    _queue(world, p)
    _delete(world, p["ReceiptHandle"])
    return {}


def delete_message_batch(world: World, p: dict[str, Any]) -> dict[str, Any]:
    _queue(world, p)
    entries = p["Entries"]
    if not entries:
        raise AwsError("EmptyBatchRequest", "There should be at least one DeleteMessageBatchRequestEntry.")
    if len(entries) > BATCH:
        raise AwsError("TooManyEntriesInBatchRequest", f"Maximum number of entries per request are {BATCH}.")
    if len({e["Id"] for e in entries}) != len(entries):
        raise AwsError("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
    done, failed = [], []
    for entry in entries:
        try:
            _delete(world, entry["ReceiptHandle"])
            done.append({"Id": entry["Id"]})
        except AwsError as error:
            failed.append({"Id": entry["Id"], "SenderFault": True, "Code": error.code, "Message": error.message})
    return {"Successful": done, "Failed": failed}


def send_message(world: World, p: dict[str, Any]) -> dict[str, Any]:
    """Whoever the queue's policy lets in may send anything."""
    _queue(world, p)
    body = p["MessageBody"]
    made = queue.send(world, body)
    return {"MessageId": made.id, "MD5OfMessageBody": md5(body.encode(), usedforsecurity=False).hexdigest()}


def _delete(world: World, handle: str) -> None:
    """The receipt of an older delivery deletes as well; a message that is gone already is no error."""
    id_, _, receipt = handle.partition("/")
    if not receipt:
        raise AwsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
    if id_ in world.messages:
        world.remove(world.messages[id_])


def _queue(world: World, p: dict[str, Any]) -> None:
    account, _, name = p["QueueUrl"].rpartition("/")
    if name != queue.NAME or account.rpartition("/")[2] != world.account:
        raise _no_queue()


def _no_queue() -> AwsError:
    return AwsError("AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")


def _within(p: dict[str, Any], name: str, low: int, high: int, default: int) -> int:
    value = p.get(name)
    if value is None:
        return default
    if not low <= value <= high:
        raise AwsError(
            "InvalidParameterValue",
            f"Value {value} for parameter {name} is invalid. Reason: Must be between {low} and {high}, if provided.",
        )
    return value

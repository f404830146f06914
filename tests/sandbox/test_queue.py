"""The queue behaves as SQS does, and EventBridge puts into it what changes in the world."""

from __future__ import annotations

import json
import threading
import time

import pytest

from healthboard.diagnosis import envelopes
from healthboard.sandbox import queue
from healthboard.sandbox.injure import clear, inject
from healthboard.sandbox.ticks.tasks import order_stop
from tests.sandbox.conftest import ACCOUNT, REGION, Fleet, boto, code_of


@pytest.fixture
def sqs(fleet: Fleet):
    client = boto(fleet.url, "sqs")
    client.at = {"QueueUrl": client.get_queue_url(QueueName=queue.NAME)["QueueUrl"]}
    fleet.advance(0.5)
    with fleet.engine.sandbox.lock:
        for message in list(fleet.world.messages.values()):  # tasks that people started as the world began
            fleet.world.remove(message)
    return client


def kinds(fleet: Fleet) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for message in fleet.world.messages.values():
        told = json.loads(message.text)
        assert envelopes.KINDS[told["detail-type"]] == told["source"]
        assert (told["account"], told["region"]) == (ACCOUNT, REGION)
        found.setdefault(told["detail-type"], []).append(told["detail"])
    return found


def test_a_received_message_is_hidden_comes_again_and_is_gone_once_deleted(fleet: Fleet, sqs):
    sqs.send_message(**sqs.at, MessageBody="one")

    def receive():
        return sqs.receive_message(**sqs.at, MaxNumberOfMessages=10, VisibilityTimeout=60).get("Messages", [])

    (first,) = receive()
    assert first["Body"] == "one" and receive() == []
    fleet.clock.offset += 6.1  # sixty seconds of AWS at speed 10
    (again,) = receive()
    assert again["MessageId"] == first["MessageId"] and again["ReceiptHandle"] != first["ReceiptHandle"]
    entries = [{"Id": "a", "ReceiptHandle": again["ReceiptHandle"]}, {"Id": "b", "ReceiptHandle": "odd"}]
    answer = sqs.delete_message_batch(**sqs.at, Entries=entries)
    assert [row["Id"] for row in answer["Successful"]] == ["a"] and answer["Failed"][0][
        "Code"
    ] == "ReceiptHandleIsInvalid"
    fleet.clock.offset += 60
    assert receive() == [] and not fleet.world.messages


def test_a_long_poll_ends_with_the_first_message_or_in_time(sqs):
    begun = time.monotonic()
    assert "Messages" not in sqs.receive_message(**sqs.at, WaitTimeSeconds=1)
    assert 0.9 < time.monotonic() - begun < 5
    timer = threading.Timer(0.2, lambda: sqs.send_message(**sqs.at, MessageBody="now"))
    timer.start()
    begun = time.monotonic()
    assert sqs.receive_message(**sqs.at, WaitTimeSeconds=20)["Messages"][0]["Body"] == "now"
    assert time.monotonic() - begun < 10
    timer.join()


def test_it_refuses_what_sqs_refuses(fleet: Fleet, sqs):
    assert code_of(lambda: sqs.get_queue_url(QueueName="other")) == "AWS.SimpleQueueService.NonExistentQueue"
    other = sqs.at["QueueUrl"].replace(ACCOUNT, "444455556666")
    assert code_of(lambda: sqs.receive_message(QueueUrl=other)) == "AWS.SimpleQueueService.NonExistentQueue"
    assert code_of(lambda: sqs.receive_message(**sqs.at, MaxNumberOfMessages=11)) == "InvalidParameterValue"
    rows = [{"Id": str(n), "ReceiptHandle": "a/b"} for n in range(11)]
    assert code_of(lambda: sqs.delete_message_batch(**sqs.at, Entries=rows)) == "TooManyEntriesInBatchRequest"


def test_what_changes_is_told(fleet: Fleet, sqs):
    one, two, three = fleet.pool("train")[:3]
    container = fleet.container(one)
    fleet.drain(one)
    inject(fleet.world, two, "ECS_CONTAINER_RUNTIME_IMPAIRED")
    fleet.ec2.stop_instances(InstanceIds=[three.id])
    task = next(t for t in fleet.world.tasks.values() if t.last == "RUNNING" and t.container != container.id)
    order_stop(fleet.world, task, "UserInitiated", "by hand")
    fleet.advance(0.5)
    told = kinds(fleet)
    states = [d for d in told[envelopes.CONTAINER] if d["ec2InstanceId"] == one.id]
    assert states[-1]["status"] == "DRAINING" and states[-1]["version"] == container.version
    health = [d for d in told[envelopes.HEALTH] if d["ec2InstanceId"] == two.id]
    assert health[0]["overallStatus"] == "IMPAIRED"
    assert {"instance-id": three.id, "state": "stopping"} in told[envelopes.EC2_STATE]
    assert any(d["taskArn"].endswith(task.id) and d["desiredStatus"] == "STOPPED" for d in told[envelopes.TASK])
    clear(fleet.world, two, "ECS_CONTAINER_RUNTIME_IMPAIRED")
    fleet.advance(0.5)
    health = [d for d in kinds(fleet)[envelopes.HEALTH] if d["ec2InstanceId"] == two.id]
    assert [d["overallStatus"] for d in health] == ["IMPAIRED", "OK"]


def test_announcements_name_the_machine_or_its_block(fleet: Fleet, sqs):
    one = fleet.pool("train")[0]
    for code in ("EC2_SPOT_INTERRUPTION", "EC2_REBALANCE", "CAPACITY_BLOCK_ENDING", "EC2_EVENT_INSTANCE_RETIREMENT"):
        inject(fleet.world, one, code)
    clear(fleet.world, one, "EC2_EVENT_INSTANCE_RETIREMENT")
    told = kinds(fleet)
    assert told["EC2 Spot Instance Interruption Warning"] == [{"instance-id": one.id, "instance-action": "terminate"}]
    assert told["EC2 Instance Rebalance Recommendation"] == [{"instance-id": one.id}]
    assert told["Capacity Block Reservation Expiration Warning"][0]["capacity-reservation-id"].startswith("cr-")
    assert [d["statusCode"] for d in told["AWS Health Event"]] == ["upcoming", "closed"]
    assert told["AWS Health Event"][0]["affectedEntities"][0]["entityValue"] == one.id


def test_a_restart_keeps_what_nobody_has_read(tmp_path):
    first = Fleet(tmp_path)
    inject(first.world, first.pool("train")[0], "EC2_REBALANCE")
    first.advance(0.5)
    waiting = set(first.world.messages)
    first.stop()
    second = Fleet(tmp_path)
    assert waiting and waiting <= set(second.world.messages)
    second.stop()

"""Events out of the queue: stored before they are deleted, once, and believed only as far as AWS itself says the same."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from healthboard import aws, clock
from healthboard.config import BadSetting
from healthboard.fleet import sources as sight
from healthboard.fleet.models import AwsMinute, HealthEvent, Instance, Interval, Source
from healthboard.fleet.seeing import why_blind
from healthboard.sandbox.calls.ecs_common import container_arn
from healthboard.sandbox.config import parse_pools
from tests import factories
from tests.collect.conftest import ACCOUNTS, again, client
from tests.sandbox.conftest import Fleet
from workers.collect import events, store

pytestmark = pytest.mark.django_db
REGION = "us-east-1"


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """In this process, and nothing moves in it by itself."""
    made = Fleet(tmp_path, pools=parse_pools("train=group:1"))
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    monkeypatch.setattr(aws, "READ_ATTEMPTS", 1)
    monkeypatch.setattr(aws, "_clients", {})
    yield made
    made.stop()


@pytest.fixture
def row(sandbox, account):
    """The sandbox's machine, as the collectors know it."""
    one = sandbox.pool("train")[0]
    container = sandbox.container(one)
    return factories.instance(
        factories.pool(account=account, region=REGION), instance_id=one.id, seen_at=clock.now(),
        container_arn=container_arn(sandbox.world, container), ecs_version=container.version,
    )  # fmt: skip


@pytest.fixture
def fleet(row):
    return row.account


def api():
    return client("sqs")


def url():
    return api().get_queue_url(QueueName=aws.SANDBOX_QUEUE)["QueueUrl"]


def send(body):
    api().send_message(QueueUrl=url(), MessageBody=body if isinstance(body, str) else json.dumps(body))


def envelope(kind="EC2 Spot Instance Interruption Warning", source="aws.ec2", id="event-1", at=None, **detail):
    return {
        "version": "0", "id": id, "detail-type": kind, "source": source, "account": ACCOUNTS[0], "region": REGION,
        "time": (at or clock.now()).isoformat(), "resources": [], "detail": detail,
    }  # fmt: skip


def state_change(row, version, connected, status="ACTIVE"):
    detail = {
        "ec2InstanceId": row.instance_id, "containerInstanceArn": row.container_arn, "version": version,
        "agentConnected": connected, "status": status, "updatedAt": clock.now().isoformat(),
    }  # fmt: skip
    return envelope("ECS Container Instance State Change", "aws.ecs", f"state-{version}", **detail)


def source():
    return Source.objects.get(name="events")


def read(account):
    again()
    return events.collect(account, REGION)


def test_an_announcement_is_stored_and_only_then_deleted(sandbox, fleet, row, monkeypatch):
    """Killed before the commit, and killed between commit and deleting: it comes again, and is stored once."""
    real = store.settle
    send(envelope(**{"instance-id": row.instance_id, "instance-action": "terminate"}))

    def before(account, write):
        raise Killed

    def after(account, write):
        real(account, write)
        raise Killed

    for killed, stored in ((before, 0), (after, 1)):
        monkeypatch.setattr(events.store, "settle", killed)
        with pytest.raises(Killed):
            read(fleet)
        assert (HealthEvent.objects.count(), len(sandbox.world.messages)) == (stored, 1)
        comes_again(sandbox)
    monkeypatch.setattr(events.store, "settle", real)
    assert read(fleet) and not sandbox.world.messages
    stored = HealthEvent.objects.get(instance=row)
    assert (stored.code, stored.source, stored.count, stored.backlog) == ("EC2_SPOT_INTERRUPTION", "ec2", 1, False)


class Killed(Exception):
    pass


def comes_again(sandbox):
    """The visibility time-out passes; the sandbox divides it by its speed."""
    sandbox.clock.offset += events.HIDDEN_S / sandbox.engine.config.speed + 0.1


def test_a_duplicate_leaves_one_event_and_one_count(sandbox, fleet, row):
    twice = envelope("EC2 Instance Rebalance Recommendation", **{"instance-id": row.instance_id})
    for _ in range(2):
        send(twice)
        send(twice)
        read(fleet)
    assert HealthEvent.objects.get(instance=row).count == 1 and not sandbox.world.messages


def test_what_cannot_be_deleted_comes_again_and_is_said(sandbox, fleet, row):
    send(envelope(**{"instance-id": row.instance_id}))
    spoil(sandbox, operation="DeleteMessageBatch", code="AccessDenied")
    assert read(fleet) is False and "AccessDenied" in source().error
    sandbox.engine.sandbox.set_rules([])
    comes_again(sandbox)
    assert read(fleet) and not sandbox.world.messages and HealthEvent.objects.get(instance=row).count == 1


def spoil(sandbox, **rule):
    sandbox.engine.sandbox.set_rules([{"service": "sqs", **rule}])


def asked(sandbox, operation):
    """How often the last round of events asked AWS for it."""
    calls = [call[4] for call in sandbox.engine.sandbox.store.calls()]
    last = len(calls) - 1 - calls[::-1].index("ReceiveMessage")
    return calls[last:].count(operation)


def test_a_state_is_a_hint_that_ecs_is_asked_about(sandbox, fleet, row):
    send(state_change(row, row.ecs_version + 5, False))
    assert read(fleet)
    after = Instance.objects.get(pk=row.pk)
    assert after.agent_connected is True, "ECS itself says that the agent is connected"
    assert not HealthEvent.objects.filter(instance=row).exists()
    assert asked(sandbox, "DescribeContainerInstances") == 1


def test_what_ecs_confirms_is_known_before_the_next_round(sandbox, fleet, row):
    sandbox.drain(sandbox.pool("train")[0])
    sandbox.advance(0.5)  # the sandbox tells of it
    assert read(fleet)
    assert Instance.objects.get(pk=row.pk).ecs_status == "DRAINING"
    assert Interval.objects.get(instance=row, name="ECS_STATUS", until=None).value == "DRAINING"


def test_older_versions_and_placements_ask_nothing(sandbox, fleet, row):
    send(state_change(row, row.ecs_version - 1, False))
    send(state_change(row, row.ecs_version + 1, True))
    assert read(fleet)
    assert asked(sandbox, "DescribeContainerInstances") == 0
    assert source().dropped == {"older version": 1}
    assert Instance.objects.get(pk=row.pk).agent_connected is True


def test_an_ec2_state_is_asked_of_ec2(sandbox, fleet, row):
    send(envelope("EC2 Instance State-change Notification", **{"instance-id": row.instance_id, "state": "stopped"}))
    later = clock.now() + timedelta(seconds=5)
    with clock.virtual(later):
        send(
            envelope(
                "EC2 Instance State-change Notification",
                id="e2",
                **{"instance-id": row.instance_id, "state": "stopped"},
            )
        )
        assert read(fleet)
    assert Instance.objects.get(pk=row.pk).state == "running"
    assert asked(sandbox, "DescribeInstanceStatus") == 1


def test_forged_and_odd_messages_are_dropped_with_a_reason_and_make_nothing(sandbox, fleet, row):
    before = Instance.objects.count()
    good = {"instance-id": row.instance_id}
    odd = {
        "not JSON": "{" * 50_000,
        "not an event": "[1, 2]",
        "another account or region": {**envelope(**good), "account": ACCOUNTS[1]},
        "unexpected kind": {**envelope(**good), "source": "my.app"},
        "no time": {**envelope(**good), "time": "soon"},
        "from the future": envelope(at=clock.now() + timedelta(hours=1), **good),
        "too old": envelope(at=clock.now() - timedelta(days=20), **good),
        "names no instance": envelope(**{"instance-id": "i-1\u0000"}),
        "unknown instance": envelope(**{"instance-id": "i-00000000000000bad"}),
        "too large": "x" * 300_000,
    }
    for body in odd.values():
        send(body)
    assert read(fleet) and not sandbox.world.messages
    assert source().dropped == dict.fromkeys(odd, 1)
    assert Instance.objects.count() == before and not HealthEvent.objects.exists()


def test_a_task_that_lost_its_mates_is_told_of_its_instance(fleet, row):
    detail = {
        "containerInstanceArn": row.container_arn,
        "lastStatus": "STOPPED",
        "stopCode": "EssentialContainerExited",
    }
    lost = {"exitCode": 1, "reason": "DistBackendError: NCCL error: ncclRemoteError: a remote process exited"}
    for name, containers in (("task-1", [lost]), ("task-2", [{"exitCode": 1, "reason": None}])):
        send(envelope("ECS Task State Change", "aws.ecs", name, **detail, containers=containers))
    assert read(fleet)
    assert HealthEvent.objects.values_list("code", "source", "instance").get() == ("COMMUNICATION_ERROR", "ecs", row.pk)


def test_an_old_event_is_recorded_and_wakes_nobody(fleet, row):
    Instance.objects.filter(pk=row.pk).update(evidence_at=None)
    send(envelope(at=clock.now() - timedelta(hours=1), **{"instance-id": row.instance_id}))
    assert read(fleet)
    assert HealthEvent.objects.get(instance=row).backlog
    assert Instance.objects.get(pk=row.pk).evidence_at is None


@pytest.mark.parametrize(
    "rule, word",
    [
        ({"operation": "GetQueueUrl", "code": "AWS.SimpleQueueService.NonExistentQueue"}, "NonExistentQueue"),
        ({"operation": "ReceiveMessage", "code": "AccessDenied"}, "AccessDenied"),
    ],
)
def test_a_lost_queue_is_a_blind_source_that_holds_nothing_else_and_recovers(sandbox, fleet, row, rule, word):
    assert read(fleet) and source().good_rounds == 1
    spoil(sandbox, **rule)
    assert read(fleet) is False
    told = source()
    assert word in told.error and told.good_rounds == 0
    later = clock.now() + timedelta(seconds=21)
    assert not AwsMinute.objects.filter(bad__gt=0).exists(), "a queue of ours says nothing about how AWS is"
    assert sight.blind(told, later) and not any("events" in why for why in why_blind(row, later))
    sandbox.engine.sandbox.set_rules([])
    assert read(fleet)
    told = source()
    assert (told.error, told.good_rounds, sight.blind(told, clock.now())) == ("", 1, False)


def test_a_second_round_at_once_finds_the_queue_claimed(fleet, row):
    assert read(fleet) and events.collect(fleet, REGION) is False


def test_without_a_queue_there_is_no_source(fleet, row, monkeypatch):
    assert read(fleet)
    monkeypatch.setenv("HEALTHBOARD_EVENTS_QUEUE", f"https://sqs.eu-west-1.amazonaws.com/{ACCOUNTS[0]}/mine")
    assert events.places() == [] and not Source.objects.filter(name="events").exists()
    assert events.collect(fleet, REGION) is False and not Source.objects.filter(name="events").exists()


def test_the_setting_names_a_queue_or_says_what_is_wrong(monkeypatch):
    one, other = (f"https://sqs.{region}.amazonaws.com/{ACCOUNTS[0]}/q" for region in ("us-east-1", "eu-west-1"))
    monkeypatch.setenv("HEALTHBOARD_EVENTS_QUEUE", f"{one},{other}")
    assert aws.event_queue(ACCOUNTS[0], "eu-west-1") == other and aws.event_queue(ACCOUNTS[1], "eu-west-1") == ""
    monkeypatch.setenv("HEALTHBOARD_EVENTS_QUEUE", "plain-name")
    assert aws.event_queue(ACCOUNTS[1], "eu-west-1") == "plain-name"
    monkeypatch.setenv("HEALTHBOARD_EVENTS_QUEUE", "https://example.com/q")
    with pytest.raises(BadSetting, match="neither the name nor the URL"):
        aws.event_queue(ACCOUNTS[0], "us-east-1")
    monkeypatch.delenv("HEALTHBOARD_EVENTS_QUEUE")
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    assert aws.event_queue(ACCOUNTS[0], "us-east-1") == ""

"""When AWS does not answer, or answers oddly, nothing is concluded: no OK, no IMPAIRED, nobody gone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet import evidence, gaps
from healthboard.fleet.models import Head, Instance, Interval, Pool, Source, Task
from tests.collect.conftest import again, control, rounds
from workers.collect import ec2, ecs

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(sandbox, account):
    rounds(account, count=3)
    again()
    return account


def state():
    """All that a blind round must leave as it is."""
    return (
        set(Interval.objects.values_list("pk", "until")),
        set(Head.objects.values_list("pk", "last_at", "count")),
        set(Instance.objects.values_list("pk", "state", "ecs_status", "agent_connected", "owner", "gone_at")),
        set(Task.objects.values_list("pk", "last_status")),
        set(Pool.objects.values_list("pk", "desired")),
    )


def source(name, scope=""):
    return Source.objects.get(name=name, scope=scope)


@pytest.mark.parametrize("mode, word", [("off", "ClosedError"), ("throttle", "RequestLimitExceeded")])
def test_aws_off_or_throttling_is_a_blind_source(sandbox, fleet, mode, word):
    control(sandbox, "aws", mode=mode)
    before = state()
    for _ in range(8):  # the sandbox lets every tenth throttled call pass
        again()
        if ec2.collect(fleet, "us-east-1") is False and source("ec2").error:
            break
    assert word in source("ec2").error and source("ec2").good_rounds == 0
    if mode == "off":
        assert state() == before
        assert ecs.collect(fleet, "us-east-1") is False and source("ecs").good_rounds == 0
    control(sandbox, "aws", mode="ok")
    again()
    assert ec2.collect(fleet, "us-east-1") is True
    assert (source("ec2").error, source("ec2").good_rounds) == ("", 1)


def test_a_blind_source_ends_in_unknown_not_in_a_verdict(sandbox, fleet):
    one = Instance.objects.filter(pool__name="train").first()
    later = clock.now() + timedelta(minutes=10)
    events, readings, context = evidence.load(one, now=later)
    assessed = evaluate(events, readings, now=later, context=context)
    assert assessed.verdict is Verdict.UNKNOWN and not assessed.may_act


@pytest.mark.parametrize(
    "rule, collect, name, scope",
    [
        ({"service": "ec2", "operation": "DescribeInstances", "do": "empty"}, ec2, "ec2", ""),
        ({"service": "ecs", "operation": "ListClusters", "do": "empty"}, ecs, "ecs", ""),
        ({"service": "ecs", "operation": "ListContainerInstances", "do": "empty"}, ecs, "ecs", "gpu"),
        ({"service": "ecs", "operation": "DescribeContainerInstances", "do": "error"}, ecs, "ecs", "gpu"),
        ({"service": "ec2", "operation": "DescribeInstanceStatus", "do": "error"}, ec2, "ec2", ""),
        ({"service": "ecs", "operation": "DescribeTasks", "do": "error"}, ecs, "ecs", "gpu"),
    ],
)
def test_an_empty_or_broken_answer_makes_nothing_gone(sandbox, fleet, rule, collect, name, scope):
    before = state()
    control(sandbox, "rules", rules=[rule])
    again()
    collect.collect(fleet, "us-east-1")
    told = source(name, scope)
    assert told.error and told.good_rounds == 0
    assert not Instance.objects.exclude(gone_at=None).exists()
    after = state()
    if collect is ec2 or scope == "gpu":
        assert before[2:] == after[2:] and before[0] == after[0]


def test_groups_that_cannot_be_read_leave_the_owners_known_before(sandbox, fleet):
    before = set(Instance.objects.values_list("pk", "owner", "group_name"))
    control(sandbox, "rules", rules=[{"service": "autoscaling", "do": "error"}])
    again()
    assert ec2.collect(fleet, "us-east-1") is True
    assert source("autoscaling").error and source("autoscaling").good_rounds == 0
    assert set(Instance.objects.values_list("pk", "owner", "group_name")) == before


def test_without_groups_from_the_start_every_owner_is_unknown(sandbox, account):
    control(sandbox, "rules", rules=[{"service": "autoscaling", "do": "error"}])
    rounds(account)
    control(sandbox, "rules", rules=[])
    told = set(
        Instance.objects.exclude(pool__kind="MANAGED").exclude(cluster__batch=True).values_list("owner", flat=True)
    )
    assert told == {"UNKNOWN"}


def test_a_running_instance_without_a_status_row_is_unknown(sandbox, fleet):
    control(sandbox, "rules", rules=[{"service": "ec2", "operation": "DescribeInstanceStatus", "do": "empty"}])
    again()
    ec2.collect(fleet, "us-east-1")
    told = set(Interval.objects.filter(name="EC2_SYSTEM", until=None).values_list("value", flat=True))
    assert told == {"INSUFFICIENT_DATA"}
    assert not Instance.objects.exclude(gone_at=None).exists()


def test_an_instance_that_ec2_no_longer_tells_is_gone_only_after_several_good_rounds(sandbox, fleet):
    lost = Instance.objects.create(
        account=fleet, region="us-east-1", instance_id="i-0123456789abcdef0", state="running",
        first_seen_at=clock.now() - timedelta(hours=1), seen_at=clock.now() - timedelta(minutes=9),
    )  # fmt: skip
    seen = []
    for _ in range(4):
        again()
        ec2.collect(fleet, "us-east-1")
        lost.refresh_from_db()
        seen.append(lost.gone_at is not None)
    assert seen[0] is False and seen[-1] is True


def test_protection_that_cannot_be_read_keeps_what_was_known(sandbox, fleet):
    task = Task.objects.filter(workload__kind="SERVICE").first()
    Task.objects.filter(pk=task.pk).update(protected_until=clock.now() + timedelta(hours=1))
    control(sandbox, "rules", rules=[{"service": "ecs", "operation": "GetTaskProtection", "do": "error"}])
    again()
    ecs.collect(fleet, "us-east-1")
    task.refresh_from_db()
    assert task.protected_until is not None
    assert "get_task_protection" in source("ecs", "gpu").error and source("ecs", "gpu").good_rounds == 0


@pytest.mark.parametrize("heads", [False, True])
def test_what_ec2_told_before_the_clock_was_set_back_holds_back_nothing_that_it_tells_now(sandbox, fleet, heads):
    ahead = clock.now() + timedelta(minutes=30)
    Instance.objects.update(seen_at=ahead, state="pending", paused_by_tag=True)
    if heads:
        Head.objects.update(last_at=ahead)
    gaps.begin("the clock was set back by 1800 s")
    again()
    assert ec2.collect(fleet, "us-east-1") is True
    assert set(Instance.objects.values_list("state", "paused_by_tag")) == {("running", False)}

"""Full rounds over the sandbox by boto3 and HTTP: what is stored, how cheaply, and what a change does."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.fleet.models import Cluster, Head, Instance, Interval, Pool, Source, Task, Workload
from tests.collect.conftest import client, control, rounds
from workers.collect import ec2, tasks

pytestmark = pytest.mark.django_db


def test_every_instance_has_its_owner_pool_and_checks(sandbox, account):
    rounds(account)
    owners = Counter((i.owner, i.pool.kind, i.pool.name[:5]) for i in Instance.objects.select_related("pool"))
    assert owners == {
        ("GROUP", "GROUP", "train"): 6,
        ("TEMPLATE", "TEMPLATE", "solo"): 4,
        ("BATCH", "GROUP", "Batch"): 2,
        ("ECS", "MANAGED", "manag"): 2,
    }
    one = Instance.objects.filter(pool__name="train").first()
    assert (one.state, one.ecs_status, one.agent_connected, one.gpus_expected) == ("running", "ACTIVE", True, 8)
    assert one.group_state == "InService" and one.owner_evidence and one.tags["healthboard:managed"] == "true"
    told = dict(Interval.objects.filter(instance=one, until=None).values_list("name", "value"))
    wanted = {"EC2_SYSTEM": "OK", "EC2_STATE": "running", "AGENT_CONNECTIVITY": "OK", "ECS_STATUS": "ACTIVE"}
    assert wanted.items() <= {k: v for k, v in told.items() if isinstance(v, str)}.items()
    assert set(Head.objects.filter(instance=one).values_list("channel", "count")) == {("ec2", 2), ("ecs", 2)}


def test_pools_clusters_workloads_and_tasks_are_known(sandbox, account):
    rounds(account)
    train = Pool.objects.get(name="train")
    assert (train.group_name, train.desired, train.minimum, train.health_check_type) == ("train-asg", 6, 3, "EC2")
    assert Pool.objects.get(name="managed").auto_repair is True
    assert Cluster.objects.get(batch=True).name.startswith("AWSBatch-")
    kinds = dict(Workload.objects.values_list("name", "kind"))
    assert kinds["pretrain"] == "SERVICE" and kinds["telemetry"] == "DAEMON"
    standalone = Task.objects.filter(workload__kind="FAMILY")
    assert standalone and all(task.job for task in standalone)
    assert not Task.objects.filter(instance=None) and not Task.objects.filter(workload=None)
    busy = Task.objects.filter(workload__name="pretrain").first()
    assert busy.gpus and busy.started_at and busy.job == ""


def test_a_roll_out_of_a_group_is_known_while_it_lasts(sandbox, account):
    scaling = client("autoscaling")
    rounds(account)
    assert set(Pool.objects.filter(name__in=["train", "solo"]).values_list("name", "rolling_out")) == {
        ("train", False), ("solo", None),
    }  # fmt: skip
    scaling.start_instance_refresh(AutoScalingGroupName="train-asg")
    try:
        rounds(account, count=1)
        assert Pool.objects.get(name="train").rolling_out is True
    finally:
        scaling.cancel_instance_refresh(AutoScalingGroupName="train-asg")


def test_a_quiet_round_writes_next_to_nothing(sandbox, account):
    rounds(account, count=3)
    told = [_one_round(account) for _ in range(5)]
    quiet = [queries for queries, moved in told if not moved]
    assert quiet, [moved for _, moved in told]  # the sandbox lives: agents blink, tasks start; not in every round
    cheap = ('UPDATE "fleet_source"', 'UPDATE "fleet_head" SET "last_at"', 'UPDATE "fleet_awsminute"')
    cheap += ('INSERT INTO "fleet_awsminute"', 'DELETE FROM "fleet_awsminute"')  # once a minute
    for queries in quiet:
        writes = [sql for sql in queries if sql.startswith(("UPDATE", "INSERT", "DELETE"))]
        assert [sql for sql in writes if not sql.startswith(cheap) and ' SET "seen_at" =' not in sql] == []
        # without savepoints: those of a minute's first count cannot be told apart, the eight of the round itself never vary
        assert len([sql for sql in queries if "fleet_awsminute" not in sql and "SAVEPOINT" not in sql]) < 64 - 8


def _one_round(account):
    """Its queries, and what it stored that was new: checks that moved, and tasks and instances that did."""
    before = _stored()
    with CaptureQueriesContext(connection) as queries:
        rounds(account, count=1)
    of_the_test = 'UPDATE "fleet_source" SET "attempted_at" = NULL'  # `rounds` makes the sources due
    return [q["sql"] for q in queries if not q["sql"].startswith(of_the_test)], _stored() ^ before


def _stored():
    """Everything that a round may find changed, as one set of rows."""
    columns = {
        Interval: ("pk", "until", "value"),
        Head: ("pk", "digest"),  # a round that is the first to confirm a change counts as news
        Task: ("pk", "last_status", "desired_status", "instance"),
        Workload: ("pk", "running", "pending", "desired"),
        Instance: ("pk", "state", "gone_at", "ecs_status", "ecs_version", "agent_connected", "tasks_running"),
    }
    return {str((m.__name__, *row)) for m, names in columns.items() for row in m.objects.values_list(*names)}


def test_a_doubled_tick_is_harmless(sandbox, account):
    assert ec2.collect(account, "us-east-1") is True
    assert ec2.collect(account, "us-east-1") is False
    assert Source.objects.get(name="ec2").good_rounds == 1


def test_the_ticks_collect_every_place(sandbox, db, settings):
    tasks.ec2()
    tasks.ecs()
    assert Instance.objects.filter(cluster__name="gpu").count() == 12


def test_an_impaired_host_and_an_agent_that_is_away_are_told(sandbox, account):
    rounds(account)
    one = Instance.objects.filter(pool__name="solo").first()
    control(sandbox, "inject", instances=[one.instance_id], code="EC2_SYSTEM_IMPAIRED")
    rounds(account, count=1)
    value = Interval.objects.get(instance=one, name="EC2_SYSTEM", until=None).value
    control(sandbox, "inject", instances=[one.instance_id], code="EC2_SYSTEM_IMPAIRED", clear=True)
    assert value == "IMPAIRED"
    one.refresh_from_db()
    assert one.evidence_at is not None


def test_a_pause_tag_on_instance_group_or_cluster_is_seen(sandbox, account):
    rounds(account)
    one = Instance.objects.filter(pool__name="solo").last()
    client("ec2").create_tags(Resources=[one.instance_id], Tags=[{"Key": "healthboard:pause", "Value": ""}])
    rounds(account, count=1)
    one.refresh_from_db()
    assert one.paused_by_tag
    assert Instance.objects.filter(paused_by_tag=True).count() == 1


def test_a_terminated_instance_is_gone_and_keeps_what_was_known(sandbox, account):
    rounds(account)
    one = Instance.objects.filter(pool__name="solo").order_by("instance_id")[1]
    client("ec2").terminate_instances(InstanceIds=[one.instance_id])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rounds(account, count=1)
        one.refresh_from_db()
        if one.gone_at:
            break
        time.sleep(0.3)
    assert one.gone_at and one.state == "terminated" and one.owner == "TEMPLATE" and one.pool.name == "solo"
    last = Interval.objects.filter(instance=one, name="EC2_STATE").order_by("-since").first().value
    assert last in ("shutting-down", "terminated")


def test_only_the_named_clusters_are_looked_after(sandbox, account, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_CLUSTERS", "gpu")
    rounds(account)
    assert set(Cluster.objects.values_list("name", flat=True)) == {"gpu"}
    assert not Instance.objects.filter(owner="BATCH").exists()


def test_it_knows_the_machine_that_it_runs_on(sandbox, account, monkeypatch):
    rounds(account, count=1)
    one = Instance.objects.first()
    monkeypatch.setenv("HEALTHBOARD_SELF_INSTANCE", one.instance_id)
    rounds(account, count=1)
    assert list(Instance.objects.filter(is_self=True)) == [one]


def test_a_protected_task_is_marked(sandbox, account):
    rounds(account)
    task = Task.objects.filter(workload__name="simulate").select_related("cluster").first()
    client("ecs").update_task_protection(cluster=task.cluster.name, tasks=[task.arn], protectionEnabled=True)
    rounds(account, count=1)
    task.refresh_from_db()
    assert task.protected_until is not None

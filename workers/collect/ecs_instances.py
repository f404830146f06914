"""Container instances: columns of `Instance`, and readings of the ecs channel."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import Q

from healthboard.diagnosis import ecs as diagnosis
from healthboard.diagnosis.signals import CheckStatus, Reading
from healthboard.fleet import heads, record
from healthboard.fleet.models import Cluster, Head, Instance, Owner, Pool, Source
from workers.collect import store

#: states in which an instance belongs to its cluster
MEMBERS = ("REGISTERING", "ACTIVE", "DRAINING", "DEREGISTERING")
#: full rounds without a word after which ECS is taken to have let an instance go
ROUNDS_UNTIL_INACTIVE = 3


def store_instances(
    cluster: Cluster,
    told: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    pools: dict[str, Pool],
    at: datetime,
    source: Source,
) -> dict[str, Instance]:
    """Write what changed and the round's readings; gives instances by container instance ARN."""
    newest = _newest(told)
    scope = {"account_id": cluster.account_id, "region": cluster.region}
    known = _known(cluster, newest)
    values, readable = {}, {}
    for instance_id, item in newest.items():
        row = known.get(instance_id)
        if row is not None and (_older(row, item) or _outranked(row, cluster, item)):
            continue
        readable[instance_id] = item
        values[instance_id] = _columns(cluster, item, row, pools)
    stored = store.upsert(Instance, known, values, {**scope, "first_seen_at": at})
    items = []
    for instance_id, item in readable.items():
        if stored[instance_id].gone_at is None:
            events, readings = diagnosis.read_container_instance(item, at=at)
            items.append(record.Item(stored[instance_id], readings, events))
    by_arn = {row.container_arn: row for row in {**known, **stored}.values() if row.container_arn}
    items += _unread(failures, by_arn, at, {item.instance.pk for item in items})
    record.record_many("ecs", at, items)
    over = _let_go(cluster, {item.get("containerInstanceArn") for item in told}, failures, at, source)
    here = {**known, **stored}.values()  # every live row of the cluster, locked
    outside = [
        row for row in here
        if row.gone_at is None and row.cluster_id == cluster.pk and (row.ecs_status == "INACTIVE" or row.pk in over)
    ]  # fmt: skip
    inactive = Reading("ECS_STATUS", "INACTIVE", "ecs", at, at)
    record.record_many("ecs", at, [record.Item(row, [inactive]) for row in sorted(outside, key=lambda row: row.pk)])
    return by_arn


def _known(cluster: Cluster, told: Iterable[str]) -> dict[str, Instance]:
    """The cluster's live rows and those told, by EC2 id, locked in the order that everybody locks them in."""
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).select_related("cluster", "pool")
    rows = rows.filter(account_id=cluster.account_id, region=cluster.region).order_by("pk")
    rows = rows.filter(Q(cluster=cluster, gone_at=None) | Q(instance_id__in=list(told)))
    return {row.instance_id: row for row in rows}


def store_some(cluster: Cluster, told: list[dict[str, Any]], at: datetime) -> None:
    """Single instances that were asked for out of turn. One that we do not know, or know newer, is left alone."""
    newest = _newest(told)
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).select_related("pool")
    rows = rows.filter(cluster=cluster, gone_at=None, instance_id__in=list(newest)).order_by("pk")
    known = {row.instance_id: row for row in rows if _same(row, newest[row.instance_id])}
    known = {name: row for name, row in known.items() if not _older(row, newest[name])}
    values = {name: _columns(cluster, newest[name], row, {}) for name, row in known.items()}
    stored = store.upsert(Instance, known, values, {})
    items = []
    for name, row in stored.items():
        events, readings = diagnosis.read_container_instance(newest[name], at=at)
        items.append(record.Item(row, readings, events))
    record.record_many("ecs", at, items)


def _newest(told: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By EC2 instance id; an agent that registered anew leaves an older row behind, which does not speak for it."""
    found: dict[str, dict[str, Any]] = {}
    for item in told:
        instance_id = item.get("ec2InstanceId")
        if not instance_id or not item.get("containerInstanceArn"):
            continue
        other = found.get(instance_id)
        if other is None or _rank(item) > _rank(other):
            found[instance_id] = item
    return found


def _rank(item: dict[str, Any]) -> tuple[bool, float]:
    registered = item.get("registeredAt")
    return bool(item.get("agentConnected")), registered.timestamp() if isinstance(registered, datetime) else 0.0


def _same(row: Instance, item: dict[str, Any]) -> bool:
    return row.container_arn == item.get("containerInstanceArn")


def _older(row: Instance, item: dict[str, Any]) -> bool:
    """An answer from before what we know: versions of one registration only grow."""
    version = item.get("version")
    return _same(row, item) and isinstance(version, int) and version < row.ecs_version


def _outranked(row: Instance, cluster: Cluster, item: dict[str, Any]) -> bool:
    """An agent that moved to another cluster leaves a registration behind in the one before, ACTIVE and without tasks.

    Only a cluster's own answer tells what has become of its registration; of those of two clusters the one ranks higher
    whose agent is connected, then the later one.
    """
    if row.cluster is None or row.cluster_id == cluster.pk or row.cluster.gone_at is not None:
        return False
    registered = row.registered_at.timestamp() if row.registered_at is not None else 0.0
    return _rank(item) <= (row.agent_connected is True, registered)


def _columns(cluster: Cluster, item: dict[str, Any], row: Instance | None, pools: dict[str, Pool]) -> dict[str, Any]:
    connected = item.get("agentConnected")
    values: dict[str, Any] = {
        "instance_id": item["ec2InstanceId"],
        "cluster": cluster,
        "container_arn": item["containerInstanceArn"],
        "ecs_status": item.get("status") or "",
        "ecs_version": item.get("version") or 0,
        "agent_connected": connected if isinstance(connected, bool) else None,
        "registered_at": item.get("registeredAt"),
        "tasks_running": item.get("runningTasksCount") or 0,
        "tasks_pending": item.get("pendingTasksCount") or 0,
    }
    pool = pools.get(item.get("capacityProviderName") or "")
    if pool is None and row is not None and row.pool is not None and row.pool.cluster_id == cluster.pk:
        pool = row.pool  # a member in Standby or detached may lose the provider's name: the pool known before stays
    values["pool"] = pool
    if cluster.batch and (row is None or row.owner != Owner.BATCH):
        values |= {"owner": Owner.BATCH, "owner_evidence": [f"cluster {cluster.name} belongs to AWS Batch"]}
    elif pool is not None and pool.kind == Pool.Kind.MANAGED and (row is None or row.pool_id != pool.pk):
        why = f"capacity provider {pool.name} is one of ECS Managed Instances"
        values |= {"owner": Owner.ECS, "owner_evidence": [why]}
    tags = dict(row.tags) if row is not None else {}
    tags.pop(store.ECS_PAUSE_TAG, None)
    own = store.tags_of(item)
    if store.PAUSE_TAG in own:
        tags[store.ECS_PAUSE_TAG] = own[store.PAUSE_TAG]
    return {**values, "tags": tags, "paused_by_tag": store.paused(tags)}


def _unread(
    failures: list[dict[str, Any]], by_arn: dict[str, Instance], at: datetime, read: set[int]
) -> list[record.Item]:
    """Instances that were listed but not described: unknown, with the reason."""
    found = []
    for failure in failures:
        row = by_arn.get(failure.get("arn") or "")
        if row is None or row.pk in read or row.gone_at is not None:
            continue
        reason = heads.text(failure.get("reason") or "no reason given", 100)
        readings = [
            Reading("AGENT_CONNECTIVITY", CheckStatus.INSUFFICIENT_DATA, "ecs", at, at, attrs={"reason": reason})
        ]
        if reason == "MISSING":
            readings.append(Reading("ECS_STATUS", "MISSING", "ecs", at, at))
        found.append(record.Item(row, readings))
    return found


def _let_go(
    cluster: Cluster, listed: set[Any], failures: list[dict[str, Any]], at: datetime, source: Source
) -> set[int]:
    """Instances that ECS no longer lists: at once where EC2 has ended them, else after several full rounds. Gives the
    rows that it has let go now."""
    told = listed | {failure.get("arn") for failure in failures}
    members = Instance.objects.filter(cluster=cluster, ecs_status__in=MEMBERS)
    silent = [row for row in members.only("container_arn", "gone_at", "state") if row.container_arn not in told]
    if not silent:
        return set()
    last = dict(
        Head.objects.filter(channel="ecs", instance__in=[r.pk for r in silent]).values_list("instance_id", "last_at")
    )
    patient = source.good_rounds >= ROUNDS_UNTIL_INACTIVE
    since = at - ROUNDS_UNTIL_INACTIVE * heads.interval("ecs")
    over = {
        row.pk
        for row in silent
        if row.gone_at is not None or row.state == "terminated" or (patient and last.get(row.pk, since) <= since)
    }
    Instance.objects.filter(pk__in=over).update(
        ecs_status="INACTIVE", agent_connected=None, tasks_running=0, tasks_pending=0
    )
    return over

"""ECS in one place: its clusters, and in each the container instances, capacity providers, services and tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from healthboard import aws, clock
from healthboard.fleet import itself
from healthboard.fleet.models import Account, Cluster, Instance
from healthboard.fleet.owners import BATCH_TAG
from workers.collect import ecs_instances, ecs_providers, ecs_tasks, sources, store
from workers.collect.reader import Blind, Reader

BATCH_NAME = "AWSBatch-"
#: a cluster that ECS no longer lists is gone after so many full rounds: it is described as INACTIVE only when asked for
ROUNDS_UNTIL_GONE = 5


@dataclass(slots=True)
class Told:
    """Everything that one round read of one cluster. `notes`: parts that could not be read."""

    instances: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    providers: list[dict[str, Any]] = field(default_factory=list)
    services: list[dict[str, Any]] = field(default_factory=list)
    tasks: ecs_tasks.Tasks = field(default_factory=ecs_tasks.Tasks)
    notes: list[str] = field(default_factory=list)


def collect(account: Account, region: str) -> bool:
    """One round over all clusters of the place; False if it was not this one's turn or any of it could not be read."""
    claim = sources.claim(account, region, "ecs")
    if claim is None:
        return False
    reader, at = None, clock.now()
    try:
        reader = Reader("ecs", account=account.account_id, region=region, touch=claim.touch)
        arns = list(reader.pages("list_clusters", "clusterArns", size=100))
        described, failures = reader.chunks("describe_clusters", "clusters", "clusters", arns, 100, include=["TAGS"])
    except Blind as blind:
        claim.failed(blind, calls=reader.calls if reader else 0)
        return False
    known = set(Cluster.objects.filter(account=account, region=region, gone_at=None).values_list("name", flat=True))
    told = {_name(item) for item in described}
    doubt = claim.doubt(len(known & told), len(known), "clusters")
    if doubt:
        claim.failed(doubt, calls=reader.calls)
        return False
    clusters = _store_clusters(account, region, described, at)
    if claim.source.good_rounds >= ROUNDS_UNTIL_GONE:
        _mark_gone(account, region, known - {store.tail(arn) for arn in arns}, at)
    claim.good(calls=reader.calls, note=_failed_parts("describe_clusters", failures))
    every = [collect_cluster(account, region, *pair) for pair in clusters]
    if ours := itself.own().clusters:  # of a new member the other round learns it only later
        Instance.objects.filter(cluster__in=ours, is_self=False).update(is_self=True)
    return all(every)


def _name(item: dict[str, Any]) -> str:
    return item.get("clusterName") or store.tail(item.get("clusterArn"))


def _store_clusters(
    account: Account, region: str, described: list[dict[str, Any]], at: datetime
) -> list[tuple[Cluster, dict[str, Any]]]:
    wanted = aws.clusters()
    told, items = {}, {}
    for item in described:
        name = _name(item)
        if not name or (wanted and name not in wanted):
            continue
        tags = store.tags_of(item)
        active = item.get("status", "ACTIVE") != "INACTIVE"
        items[name] = item
        told[name] = {
            "name": name,
            "arn": item.get("clusterArn") or "",
            "batch": name.startswith(BATCH_NAME) or any(BATCH_TAG.match(key) for key in tags),
            "paused_by_tag": store.paused(tags),
            "gone_at": None if active else at,
        }

    def write() -> dict[str, Cluster]:
        rows = {c.name: c for c in Cluster.objects.filter(account=account, region=region)}
        stored = store.upsert(Cluster, rows, told, {"account": account, "region": region})
        store.mark_seen(Cluster, [c.pk for c in stored.values()], at)
        return stored

    stored = store.settle(account, write)
    return [(row, items[name]) for name, row in stored.items() if row.gone_at is None]


def _mark_gone(account: Account, region: str, unlisted: set[str], at: datetime) -> None:
    """Clusters that ECS has not listed for several full rounds; one that it lists again is there again."""
    since = at - ROUNDS_UNTIL_GONE * clock.scaled(sources.INTERVAL_S)
    rows = Cluster.objects.filter(account=account, region=region, gone_at=None, name__in=unlisted)
    rows.filter(seen_at__lt=since).update(gone_at=at)


def collect_cluster(account: Account, region: str, cluster: Cluster, item: dict[str, Any]) -> bool:
    claim = sources.claim(account, region, "ecs", cluster.name)
    if claim is None:
        return False
    reader, at = None, clock.now()
    try:
        reader = Reader("ecs", account=account.account_id, region=region, touch=claim.touch)
        told = _read(reader, cluster, item)
    except Blind as blind:
        claim.failed(blind, calls=reader.calls if reader else 0)
        return False
    members = Instance.objects.filter(cluster=cluster, gone_at=None, ecs_status__in=ecs_instances.MEMBERS)
    doubt = claim.doubt(len(told.instances), members.count(), "container instances")
    if doubt:
        claim.failed(doubt, calls=reader.calls)
        return False

    def write() -> bool:
        if claim.overtaken(at):
            return False
        pools = ecs_providers.store_providers(cluster, told.providers, at)
        rows = ecs_instances.store_instances(cluster, told.instances, told.failures, pools, at, claim.source)
        workloads = ecs_tasks.store_services(cluster, told.services, at)
        ecs_tasks.store_tasks(cluster, told.tasks, rows, workloads, at)
        claim.good(calls=reader.calls, note="; ".join(told.notes), at=at)
        return True

    return store.settle(account, write)


def _read(reader: Reader, cluster: Cluster, item: dict[str, Any]) -> Told:
    """All calls of a round, before anything is written. Raises Blind."""
    told = Told()
    arns = list(reader.pages("list_container_instances", "containerInstanceArns", size=100, cluster=cluster.arn))
    told.instances, told.failures = reader.chunks(
        "describe_container_instances",
        "containerInstances",
        "containerInstances",
        arns,
        100,
        cluster=cluster.arn,
        include=["CONTAINER_INSTANCE_HEALTH", "TAGS"],
    )
    told.notes += [_failed_parts("describe_container_instances", told.failures)]
    told.providers = ecs_providers.read(reader, item.get("capacityProviders") or [])
    services = list(reader.pages("list_services", "serviceArns", size=100, cluster=cluster.arn))
    told.services, failures = reader.chunks(
        "describe_services", "services", "services", services, 10, cluster=cluster.arn, include=["TAGS"]
    )
    told.notes += [_failed_parts("describe_services", failures)]
    told.tasks = ecs_tasks.read(reader, cluster)
    told.notes = [note for note in [*told.notes, *told.tasks.notes] if note]
    return told


def _failed_parts(operation: str, failures: list[dict[str, Any]]) -> str:
    """What failed otherwise than by being gone; a thing that went between two calls is normal."""
    reasons = sorted({str(f.get("reason")) for f in failures if f.get("reason") != "MISSING"})
    return f"ecs {operation}: {len(failures)} failed ({', '.join(reasons)})" if reasons else ""

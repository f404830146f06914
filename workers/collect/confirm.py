"""What events hint at is asked of AWS itself, instance by instance and out of turn; a hint alone changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from healthboard import clock
from healthboard.fleet.models import Account, Cluster, Instance
from workers.collect import ec2, ecs_instances
from workers.collect.reader import Blind, Reader

log = logging.getLogger(__name__)
#: instances of one call; what is more waits for the next full round
MOST = 100


@dataclass(slots=True)
class Seen:
    """Answers of AWS as of `at`, for `write`."""

    at: datetime
    containers: list[tuple[Cluster, list[dict[str, Any]]]] = field(default_factory=list)
    statuses: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0


def read(account: Account, region: str, *, ecs_of: Iterable[Instance], ec2_of: Iterable[Instance]) -> Seen:
    """One call for each cluster and one for EC2, at most. What AWS does not answer is left to the next full round."""
    seen = Seen(clock.now())
    clusters: dict[Cluster, list[str]] = {}
    for row in ecs_of:
        if row.cluster is not None and row.container_arn:
            clusters.setdefault(row.cluster, []).append(row.container_arn)
    for cluster, arns in clusters.items():
        wanted = {"containerInstances": sorted(set(arns))[:MOST], "include": ["CONTAINER_INSTANCE_HEALTH", "TAGS"]}
        answer = _ask(seen, account, region, "ecs", "describe_container_instances", cluster=cluster.arn, **wanted)
        if answer.get("containerInstances"):
            seen.containers.append((cluster, answer["containerInstances"]))
    ids = sorted({row.instance_id for row in ec2_of})[:MOST]
    if ids:
        answer = _ask(
            seen, account, region, "ec2", "describe_instance_status", InstanceIds=ids, IncludeAllInstances=True
        )
        seen.statuses = answer.get("InstanceStatuses") or []
    return seen


def _ask(seen: Seen, account: Account, region: str, service: str, operation: str, **params: Any) -> dict[str, Any]:
    try:
        seen.calls += 1
        return Reader(service, account=account.account_id, region=region).call(operation, **params)
    except Blind as blind:
        log.info("%s %s: a hint is not confirmed now: %s", account, region, blind)
        return {}


def write(account: Account, region: str, seen: Seen) -> None:
    """Call inside the transaction that stores the events."""
    for cluster, items in seen.containers:
        ecs_instances.store_some(cluster, items, seen.at)
    if seen.statuses:
        ec2.store_some(account, region, seen.statuses, seen.at)

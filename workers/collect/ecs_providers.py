"""Capacity providers become pools."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from healthboard.fleet.models import Cluster, Pool
from workers.collect import store
from workers.collect.reader import Reader

FARGATE = frozenset({"FARGATE", "FARGATE_SPOT"})


def read(reader: Reader, names: list[str]) -> list[dict[str, Any]]:
    """Descriptions of a cluster's own providers. Raises Blind."""
    wanted = [name for name in names if name not in FARGATE]
    if not wanted:
        return []
    described, _ = reader.chunks(
        "describe_capacity_providers", "capacityProviders", "capacityProviders", wanted, 10, include=["TAGS"]
    )
    return described


def store_providers(cluster: Cluster, described: list[dict[str, Any]], at: datetime) -> dict[str, Pool]:
    """Pools of this cluster by provider name, those told now and those known before."""
    pools = {p.name: p for p in Pool.objects.filter(cluster=cluster)}
    rows = {name: pool for name, pool in pools.items() if pool.provider_arn}
    told = {item["name"]: _columns(item) for item in described if item.get("name")}
    # a pool that was found by its template before the provider existed keeps its row
    known = {name: pool for name, pool in pools.items() if name in told}
    fixed = {"account_id": cluster.account_id, "region": cluster.region, "cluster": cluster}
    stored = store.upsert(Pool, known, told, fixed)
    store.mark_seen(Pool, [pool.pk for pool in stored.values()], at)
    return {**rows, **stored}


def _columns(item: dict[str, Any]) -> dict[str, Any]:
    group = item.get("autoScalingGroupProvider")
    managed = item.get("managedInstancesProvider")
    values: dict[str, Any] = {"name": item["name"], "provider_arn": item.get("capacityProviderArn") or item["name"]}
    if group is not None:
        arn = str(group.get("autoScalingGroupArn") or "")
        values |= {"kind": Pool.Kind.GROUP, "group_name": arn.rpartition("autoScalingGroupName/")[2]}
    elif managed is not None:
        repair = (managed.get("autoRepairConfiguration") or {}).get("actionsStatus")
        values |= {"kind": Pool.Kind.MANAGED, "auto_repair": None if repair is None else repair == "ENABLED"}
        values["paused_by_tag"] = store.paused(store.tags_of(item))
    else:
        values["kind"] = Pool.Kind.NONE  # a kind that we do not know: its instances' owner is UNKNOWN
    return values

"""The owner of an instance from the answers of one round; what could not be read keeps the owner known before."""

from __future__ import annotations

from typing import Any

from healthboard.fleet.models import Instance, Owner, Pool
from healthboard.fleet.owners import Facts, owner_of
from workers.collect.autoscaling import Groups


def owner_columns(
    row: Instance | None, item: dict[str, Any], tags: dict[str, str], values: dict[str, Any], groups: Groups | None
) -> dict[str, Any]:
    """Columns `owner` and `owner_evidence`. Without an answer of Auto Scaling nothing changes."""
    if groups is None:
        return {} if row is not None else {"owner": Owner.UNKNOWN, "owner_evidence": ["Auto Scaling could not be read"]}
    if row is not None and values["state"] in ("terminated", "shutting-down"):
        return {}  # groups let go of their members before these are gone: what was true in life stays on record
    owner, evidence = owner_of(_facts(row, item, tags, values, groups))
    return {"owner": owner, "owner_evidence": evidence}


def _facts(
    row: Instance | None, item: dict[str, Any], tags: dict[str, str], values: dict[str, Any], groups: Groups
) -> Facts:
    cluster = row.cluster if row is not None else None
    pool: Pool | None = values.get("pool", row.pool if row is not None else None)
    provider = pool is not None and bool(pool.provider_arn)
    operator = item.get("Operator") or {}
    group = values["group_name"]
    return Facts(
        tags=tags if "Tags" in item else {},
        operator=operator.get("Principal") or ("an unnamed operator" if operator.get("Managed") else ""),
        cluster=cluster.name if cluster else None,
        cluster_batch=cluster.batch if cluster else None,
        provider=pool.name if provider else "",
        provider_kind=str(pool.kind) if provider else "",
        provider_group=pool.group_name if provider else "",
        group=group,
        group_tags=groups.tags(group) if group else {},
    )

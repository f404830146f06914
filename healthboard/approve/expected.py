"""What history and the pool say of a plan: how long such repairs took, how the last launch came out, how many stay."""

from __future__ import annotations

from typing import Any

from healthboard.fleet.models import Instance
from healthboard.repairs import history


def of(instance: Instance, action: str, plan: dict[str, Any]) -> dict[str, Any]:
    """`took_before`, `last_launch` and `stay`, each None where nothing is known. Two queries."""
    pool = instance.pool
    used = plan.get("budget") or {}
    size, out = used.get("size"), used.get("out")
    launch = None
    if action == "REPLACE":
        launch = history.last_launch(instance.account_id, instance.region, instance.instance_type)
    return {
        "took_before": history.took(action, instance.owner, instance.pool_id, pool.name if pool else ""),
        "last_launch": launch,
        # with this one out as well; one that is out already is counted
        "stay": max(size - out - instance.serving, 0) if isinstance(size, int) and isinstance(out, int) else None,
    }

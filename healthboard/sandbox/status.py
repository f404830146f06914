"""What ``sandbox status --json`` prints."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.entities import Activity
from healthboard.sandbox.protocol.serialize import iso
from healthboard.sandbox.world import Sandbox, World


def status(sandbox: Sandbox, endpoint: str) -> dict[str, Any]:
    """Call with the lock held. Times are ISO UTC; terminated instances stay listed."""
    calls = [
        {
            "at": iso(at), "service": service, "operation": operation, "target": target, "outcome": outcome,
            "account": account, "region": region,
        }
        for at, account, region, service, operation, target, outcome in sandbox.store.calls()
    ]  # fmt: skip
    return {"endpoint": endpoint, "aws": sandbox.mode, "calls": calls, **fleet(sandbox)}


def fleet(sandbox: Sandbox) -> dict[str, Any]:
    """Of that, what stands now and what the groups did: without the calls, which are most of it after a while."""
    out: dict[str, Any] = {"activities": [], "groups": [], "instances": []}
    for world in sandbox.worlds.values():
        where = {"account": world.account, "region": world.region}
        out["activities"] += [
            {**_activity(a), **where} for a in sorted(world.activities.values(), key=lambda a: a.order)
        ]
        out["groups"] += [{**row, **where} for row in _groups(world)]
        out["instances"] += [{**row, **where} for row in _instances(world)]
    return out


def _activity(a: Activity) -> dict[str, Any]:
    outcome = {"Successful": "ok", "InProgress": "in_progress"}.get(a.status, a.error or "failed")
    return {
        "at": iso(a.started_at), "group": a.group, "kind": a.what, "instance_id": a.instance, "outcome": outcome,
        "cause": a.cause,
    }  # fmt: skip


def _groups(world: World) -> list[dict[str, Any]]:
    return [
        {
            "group": g.id,
            "pool": g.pool,
            "desired": g.desired,
            "min": g.minimum,
            "max": g.maximum,
            "in_service": sum(1 for m in g.members.values() if m["state"] == "InService"),
            "standby": sum(1 for m in g.members.values() if m["state"] in ("Standby", "EnteringStandby")),
        }
        for g in world.groups.values()
    ]


def _instances(world: World) -> list[dict[str, Any]]:
    rows = []
    for i in world.instances.values():
        container = world.container_of.get(i.id)
        tasks = world.live_tasks(container.id) if container else []
        rows.append(
            {
                "instance_id": i.id,
                "name": i.name,
                "state": i.state,
                "pool": i.pool,
                "zone": i.zone,
                "type": i.type,
                # ECS forgets a deregistered instance after a while, this list does not
                "status": container.status if container else "INACTIVE" if i.registered else None,
                "agent_connected": bool(container and container.connected),
                "tasks": len(tasks),
                "standalone_tasks": sum(1 for t in tasks if t.service is None),
                "boot_id": i.boot_id,
                "faults": [f["code"] for f in i.faults],
            }
        )
    return rows

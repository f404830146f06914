"""Container instance health as DescribeContainerInstances shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from healthboard.sandbox.entities import Container
from healthboard.sandbox.health import flags, since
from healthboard.sandbox.world import World

#: how long an agent must be away before ECS calls its connectivity impaired (AWS publishes no number)
SUSTAINED_S = 300
CHECK_EVERY_S = 60
ORDER = ("IMPAIRED", "INSUFFICIENT_DATA", "INITIALIZING", "OK")


def health_status(world: World, c: Container) -> dict[str, Any]:
    instance = world.instances[c.instance]
    now, speed = world.now(), world.config.speed
    have = flags(instance) if instance.faults else set()
    away = c.disconnected_at if not c.connected else None
    reported = away or now - now % (CHECK_EVERY_S / speed)
    begun = c.registered_at
    details = []

    def add(type_: str, status: str, changed: float | None, reason: str | None = None) -> None:
        row = {"type": type_, "status": status, "lastUpdated": reported, "lastStatusChange": changed or begun}
        details.append({**row, "statusReason": reason} if reason else row)

    # what the agent itself reports is unknown while it is away
    if away is not None:
        add("CONTAINER_RUNTIME", "INSUFFICIENT_DATA", away)
    elif "runtime" in have:
        add("CONTAINER_RUNTIME", "IMPAIRED", since(instance, "runtime"))
    else:
        add("CONTAINER_RUNTIME", "OK", None)
    if away is not None and now - away > SUSTAINED_S / speed:
        text = datetime.fromtimestamp(away, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        add("AGENT_CONNECTIVITY", "IMPAIRED", away + SUSTAINED_S / speed, f"Agent disconnected since {text}")
    else:
        add("AGENT_CONNECTIVITY", "OK", None)
    if instance.operator:
        add("ACCELERATED_COMPUTE", "OK" if away is None else "INSUFFICIENT_DATA", None)
        add("DAEMON", "OK" if away is None else "INSUFFICIENT_DATA", None)
    overall = min((d["status"] for d in details), key=ORDER.index)
    return {"overallStatus": overall, "details": details}

"""An instance's checks side by side, out of its open intervals: one status, its source, and how old it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from healthboard.fleet.models import Head, Instance, Interval

#: reading -> (who runs the check, its name in words, in the order in which a page shows them)
KNOWN = {
    "EC2_SYSTEM": ("EC2", "System status"),
    "EC2_INSTANCE": ("EC2", "Instance status"),
    "EC2_ATTACHED_EBS": ("EC2", "Attached EBS"),
    "EC2_SCHEDULED_EVENT": ("EC2", "Scheduled event"),
    "AGENT_CONNECTIVITY": ("ECS", "Agent connectivity"),
    "CONTAINER_RUNTIME": ("ECS", "Container runtime"),
    "ACCELERATED_COMPUTE": ("ECS", "Accelerated compute"),
    "DAEMON": ("ECS", "Daemon"),
    "NVML": ("Node", "NVML"),
    "GPU_COUNT": ("Node", "GPU count"),
    "FABRIC": ("Node", "Fabric"),
    "EXPORTER": ("dcgm", "Exporter"),
    "DCGM_GPU_COUNT": ("dcgm", "GPU count by its exporter"),
    "TASKS": ("healthboard", "Tasks"),
}
STATUSES = ("OK", "IMPAIRED", "INSUFFICIENT_DATA", "INITIALIZING")
#: a channel that was silent for this long says nothing any more, where its source names no interval
STALE = timedelta(minutes=3)


@dataclass(frozen=True, slots=True)
class Check:
    by: str
    title: str
    status: str
    value: str
    since: datetime
    last: datetime
    stale: bool


def read(
    instance: Instance,
    heads: Iterable[Head],
    intervals: Iterable[Interval],
    now: datetime,
    patience: Mapping[str, timedelta],
) -> list[Check]:
    """Checks in the order of `KNOWN`; what its channel did not confirm within its `patience` is INSUFFICIENT_DATA."""
    by_pk = {head.pk: head for head in heads}
    found = []
    for interval in intervals:
        head = by_pk[interval.head_id]
        name = _name(interval, head)
        if name not in KNOWN or interval.gpu:
            continue
        by, title = KNOWN[name]
        seen = head.last_at
        stale = now - seen > patience.get(head.channel, STALE)
        status = "INSUFFICIENT_DATA" if stale else _status(interval.name, interval.value, instance)
        found.append(Check(by, title, status, _words(interval.value), interval.since, seen, stale))
    order = [title for _, title in KNOWN.values()]
    return sorted(found, key=lambda check: order.index(check.title))


def _name(interval: Interval, head: Head) -> str:
    """Its row in `KNOWN`: an exporter counts GPUs as the node does, and a GAP of its channel is its own result."""
    if head.channel != "dcgm":
        return interval.name
    return {"GPU_COUNT": "DCGM_GPU_COUNT", "GAP": "EXPORTER"}.get(interval.name, interval.name)


def _status(name: str, value: Any, instance: Instance) -> str:
    if value in STATUSES:
        return str(value)
    if name == "EC2_SCHEDULED_EVENT":
        return "IMPAIRED" if value else "OK"
    if name == "NVML":
        return "OK" if value == "ok" else "INSUFFICIENT_DATA"
    if name == "GPU_COUNT":
        if value is None or instance.gpus_expected is None:
            return "INSUFFICIENT_DATA"
        return "OK" if value >= instance.gpus_expected else "IMPAIRED"
    return "INSUFFICIENT_DATA"


def _words(value: Any) -> str:
    if value in STATUSES:
        return ""
    return "none" if value is None else str(value)

"""An end that was announced: what it brings along is no fault, and nothing is repaired that goes away by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from healthboard.diagnosis.evidence import Evidence
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.rules.claims import Claims
from healthboard.diagnosis.signals import Action, Event, Verdict

#: How long after its notice the end is awaited: Spot gives two minutes, a Capacity Block forty and ends within ten more.
#: Afterwards an instance that still runs is read as any other.
ENDS = {"EC2_SPOT_INTERRUPTION": timedelta(minutes=10), "CAPACITY_BLOCK_ENDING": timedelta(minutes=60)}
#: and how much later than announced it may come
_LATE = timedelta(minutes=10)
#: What an instance shows while it is taken away.
_FOLLOWS = ("EC2_SYSTEM_IMPAIRED", "EC2_INSTANCE_IMPAIRED", "ECS_AGENT_DISCONNECTED")


class Notice(Protocol):
    """An event as it was told, or its stored row."""

    at: datetime
    code: str
    attrs: Mapping[str, Any]


def ending(evidence: Evidence) -> Event | None:
    """The newest notice whose end is still awaited."""
    awaited = [e for e in evidence.of(*ENDS) if e.at <= evidence.now < until(e)]
    return awaited[-1] if awaited else None


def until(notice: Notice) -> datetime:
    """When the end is no longer awaited."""
    told = parse_time(notice.attrs.get("ends"))
    return told + _LATE if told else notice.at + ENDS[notice.code]


def apply(evidence: Evidence, claims: Claims) -> list[datetime]:
    """What began after the notice follows from it; returns when the end is no longer awaited."""
    notice = ending(evidence)
    if notice is None:
        return []
    for claim in claims.of(*_FOLLOWS):
        if claim.first >= notice.at:
            claim.set(Verdict.WATCH, Action.NONE, "follows from the end that was announced", "announced-end")
            claim.role = "companion"
    return [until(notice)]

"""Whether we can see: the age of each source, and when it counts as blind."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard.fleet.models import Source

#: rounds that may be missed before a source counts as blind
MISSED = 3
#: never sooner than this, whatever the interval: a busy machine's pauses do not shrink with the sandbox's speed
LEAST_S = 20.0


def patience(source: Source) -> timedelta:
    """How long a source may be silent before what it said is no longer believed."""
    return timedelta(seconds=max(source.interval_s * MISSED, LEAST_S))


def blind(source: Source, now: datetime) -> bool:
    """True where the source has not told anything for more than three of its rounds (or never)."""
    if source.succeeded_at is None:
        return True
    return now - source.succeeded_at > patience(source)

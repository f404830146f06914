"""Whether we can see: the age of each source, when it counts as blind, and when it is watched anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from healthboard.fleet.models import Cluster, Source

#: rounds that may be missed before a source counts as blind
MISSED = 3
#: never sooner than this, whatever the interval: a busy machine's pauses do not shrink with the sandbox's speed
LEAST_S = 20.0


def patience(source: Source) -> timedelta:
    """How long a source may be silent before what it said is no longer believed."""
    return timedelta(seconds=max(source.interval_s * MISSED, LEAST_S))


def listened_to() -> QuerySet[Source]:
    """Sources that have something to tell: not those of a cluster that is gone, which nobody asks any more."""
    place = {"account": OuterRef("account"), "region": OuterRef("region"), "name": OuterRef("scope")}
    return Source.objects.exclude(Exists(Cluster.objects.filter(**place, gone_at__isnull=False)), name="ecs")


def blind(source: Source, now: datetime) -> bool:
    """True where the source has not told anything for more than three of its rounds (or never).

    A last word from the future is none: the clock was set back since.
    """
    if source.succeeded_at is None:
        return True
    return abs(now - source.succeeded_at) > patience(source)


def watch_anew(now: datetime, **place: Any) -> int:
    """What the sources told so far counts for nothing: each has to tell full rounds that begin from now on.

    `place`: account and region; without them every source. A round that is under way does not count, and one that
    the clock has moved into the future holds nobody up.
    """
    rows = Source.objects.filter(**place)
    rows.filter(attempted_at__gt=now).update(attempted_at=None)
    return rows.update(good_rounds=0, doubted_rounds=0, watched_from=now)

"""How long repairs like this one took before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from django.db.models import Min, Q

from healthboard import clock
from healthboard.repairs.models import Launch, Repair
from healthboard.repairs.states import State

#: how far back, how many, and how few of the pool itself are enough
SINCE, MOST, ENOUGH = timedelta(days=90), 50, 3


@dataclass(frozen=True, slots=True)
class Took:
    """Of repairs that succeeded, from the first step to the end."""

    seconds: float  # the median
    longest: float
    count: int
    where: str  # the pool, or empty for all pools


def took(action: str, owner: str, pool_id: int | None, pool: str = "") -> Took | None:
    """Of the pool where it has enough of them, else of all; None where there is none."""
    rows = (
        Repair.objects.filter(action=action, owner=owner, state=State.SUCCEEDED, closed_at__gt=clock.now() - SINCE)
        .annotate(begun=Min("steps__started_at"))
        .exclude(begun=None)
        .order_by("-closed_at")
        .values_list("pool_id", "begun", "closed_at")[: MOST * 4]
    )
    spans = [(pk, max((end - begun).total_seconds(), 0)) for pk, begun, end in rows]
    mine = [seconds for pk, seconds in spans if pk == pool_id][:MOST]
    here = len(mine) >= ENOUGH
    chosen = mine if here else [seconds for _, seconds in spans][:MOST]
    return Took(median(chosen), max(chosen), len(chosen), pool if here else "") if chosen else None


def last_launch(account_id: int, region: str, instance_type: str) -> Launch | None:
    """How the newest launch of this type in this place came out: the nearest word on whether there is room now."""
    here = Q(repair__instance__account=account_id, repair__instance__region=region, instance_type=instance_type)
    return Launch.objects.filter(here).order_by("-at", "-pk").first()

"""How long repairs took before, from their first step to a verified end: what a plan says of it, and what one under way
is expected to take. Both read the same past."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, NamedTuple

from django.db.models import F, Min, Q
from django.db.models.functions import Coalesce

from healthboard import clock
from healthboard.repairs.models import Launch, Repair
from healthboard.repairs.states import State

#: how far back, how many, and how few of the pool itself are enough; how many of all those that are under way
SINCE, MOST, ENOUGH, MOST_AT_ONCE = timedelta(days=90), 50, 3, 2000


@dataclass(frozen=True, slots=True)
class Took:
    """Of repairs that succeeded, from the first step to the end."""

    seconds: float  # the median
    longest: float
    count: int
    where: str  # the pool, or empty for all pools


@dataclass(frozen=True, slots=True)
class Expected:
    seconds: float  # the median, from the beginning to the end
    count: int  # of how many
    at: datetime  # when it would end then
    late: bool  # it takes longer than usual


class _Past(NamedTuple):
    action: str
    pool: int | None
    seconds: float


def _past(most: int, **which: Any) -> Iterator[_Past]:
    """Those that succeeded lately, the newest first. One without a step of its own began when its undo time was over."""
    now = clock.now()
    rows = (
        Repair.objects.filter(state=State.SUCCEEDED, closed_at__gt=now - SINCE, closed_at__lte=now, **which)
        .annotate(begun=Coalesce(Min("steps__started_at"), F("not_before")))
        .order_by("-closed_at")
    )
    for action, pool, begun, ended in rows.values_list("action", "pool_id", "begun", "closed_at")[:most]:
        yield _Past(action, pool, max((ended - begun).total_seconds(), 0))


def took(action: str, owner: str, pool_id: int | None, pool: str = "") -> Took | None:
    """Of the pool where it has enough of them, else of all; None where there is none."""
    found = list(_past(MOST * 4, action=action, owner=owner))
    mine = [past.seconds for past in found if past.pool == pool_id][:MOST]
    here = len(mine) >= ENOUGH
    chosen = mine if here else [past.seconds for past in found][:MOST]
    return Took(median(chosen), max(chosen), len(chosen), pool if here else "") if chosen else None


def expect(running: Iterable[Repair]) -> dict[int, Expected]:
    """By repair, in one query; a repair without any like it in its pool is left out: its time is unknown."""
    rows = [repair for repair in running if repair.pool_id is not None]
    if not rows:
        return {}
    known: dict[tuple[str, int | None], list[float]] = defaultdict(list)
    for past in _past(MOST_AT_ONCE, pool__in={r.pool_id for r in rows}, action__in={r.action for r in rows}):
        known[past.action, past.pool].append(past.seconds)
    now = clock.now()
    return {
        r.pk: _one(known[r.action, r.pool_id], _begins(r, now), now) for r in rows if known.get((r.action, r.pool_id))
    }


def _begins(repair: Repair, now: datetime) -> datetime:
    """One that waits for a window or the budget has not begun, whatever time has passed since its undo time was over."""
    return max(repair.not_before, now) if repair.state == State.SCHEDULED else repair.not_before


def _one(spans: list[float], begun: datetime, now: datetime) -> Expected:
    usual = median(spans)
    end = begun + timedelta(seconds=usual)
    return Expected(usual, len(spans), end, end < now)


def last_launch(account_id: int, region: str, instance_type: str) -> Launch | None:
    """How the newest launch of this type in this place came out: the nearest word on whether there is room now."""
    here = Q(repair__instance__account=account_id, repair__instance__region=region, instance_type=instance_type)
    return Launch.objects.filter(here).order_by("-at", "-pk").first()

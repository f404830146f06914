"""How long repairs under way will take, from those that ended well before: same action, same pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from healthboard import clock
from healthboard.repairs.models import Repair
from healthboard.repairs.states import State

#: how far back is looked, and at how many at most
SINCE, MOST = timedelta(days=90), 2000


@dataclass(frozen=True, slots=True)
class Expected:
    seconds: float  # the median, from the beginning to the end
    count: int  # of how many
    at: datetime  # when it would end then
    late: bool  # it takes longer than usual


def expect(running: Iterable[Repair]) -> dict[int, Expected]:
    """By repair, in one query; a repair without any like it is left out: its time is unknown."""
    rows = [repair for repair in running if repair.pool_id is not None]
    if not rows:
        return {}
    now = clock.now()
    known: dict[tuple[str, int], list[float]] = defaultdict(list)
    past = Repair.objects.filter(
        state=State.SUCCEEDED, closed_at__gt=now - SINCE, closed_at__lte=now,
        pool__in={repair.pool_id for repair in rows}, action__in={repair.action for repair in rows},
    )  # fmt: skip
    for action, pool, begun, ended in past.order_by("-closed_at").values_list(
        "action", "pool", "not_before", "closed_at"
    )[:MOST]:
        known[action, pool].append(max((ended - begun).total_seconds(), 0))
    return {r.pk: _one(known[r.action, r.pool_id], r.not_before, now) for r in rows if known.get((r.action, r.pool_id))}


def _one(spans: list[float], begun: datetime, now: datetime) -> Expected:
    usual = median(spans)
    end = begun + timedelta(seconds=usual)
    return Expected(usual, len(spans), end, end < now)

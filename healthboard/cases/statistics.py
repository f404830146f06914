"""What became of the cases of a time: by cause, by who decided, how they ended, false alarms, and how long it took.

A case belongs to the day or week in which it was opened, and so does everything that became of it: the sums of a time
are the sums of its days. Cases of a group as a whole, and those merged into one, are left out; their members count.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import OuterRef, Subquery
from django.db.models.fields.json import KT

from healthboard import words
from healthboard.cases.listing import counted
from healthboard.cases.models import BY_HAND, Case, Decision, Evidence
from healthboard.cases.states import Resolution
from healthboard.diagnosis import catalogue
from healthboard.diagnosis.parsed import parse_time
from healthboard.fleet.foreign import See
from healthboard.repairs.states import State

#: days: the longest time that is told at once, and up to how many are told by day if nothing else is asked for
LONGEST, BY_DAY = 400, 62
STEPS = {"day": timedelta(days=1), "week": timedelta(days=7)}
#: a case that ended so, without a repair, had nothing to repair
FALSE = (str(Resolution.DISMISSED), str(Resolution.CLEARED))
FALSE_IN_WORDS = (
    "A false alarm is a case that ended without any repair because a person dismissed it, or because its evidence "
    "cleared by itself. What was repaired is never one: afterwards nobody can tell. What people asked for by hand does "
    "not count either."
)
#: kind of a decision -> who decided; what nobody decided has no repair
DECIDERS = {"policy": "By policy", "approved": "Approved by a person", "overridden": "Overridden by a person",
            "by_hand": "Asked for by hand"}  # fmt: skip
SPANS = {
    "detect": "From the first sign to the case",
    "decide_policy": "From the case to the policy's decision",
    "decide_person": "From the case to a person's decision",
    "repair": "From the decision to the verified end",
}
_KINDS = {"auto": "policy", "approve": "approved", "override": "overridden"}


@dataclass(frozen=True, slots=True)
class Spread:
    """Of `count` times in seconds; None where there is none."""

    count: int
    median: float | None
    p90: float | None


@dataclass(slots=True)
class Bucket:
    """One day or week; also one cause, and the whole."""

    start: datetime | None = None
    code: str = ""
    cases: int = 0
    closed: int = 0
    false_alarms: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)  # resolution, of closed ones
    repairs: Counter[str] = field(default_factory=Counter)  # by DECIDERS
    ended: Counter[str] = field(default_factory=Counter)  # repairs by SUCCEEDED, FAILED, CANCELLED; "" under way
    spans: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def title(self) -> str:
        return "Asked for by a person" if self.code == BY_HAND else catalogue.get(self.code).title

    def spread(self, name: str) -> Spread:
        found = sorted(self.spans.get(name, ()))
        return Spread(len(found), _rank(found, 0.5), _rank(found, 0.9))

    @property
    def false_share(self) -> float | None:
        """Of closed cases, 0 to 1."""
        return self.false_alarms / self.closed if self.closed else None


@dataclass(frozen=True, slots=True)
class Figures:
    since: datetime
    until: datetime
    by: str
    whole: Bucket
    buckets: list[Bucket]  # each day or week of the time, without gaps
    causes: list[Bucket]  # the most frequent first


class _Case(NamedTuple):
    pk: int
    code: str
    opened: datetime
    closed: datetime | None
    resolution: str
    sign: str | None


def span(since: datetime | None, until: datetime | None, by: str, now: datetime) -> tuple[datetime, datetime, str]:
    """The time that is told, in whole days or weeks (Monday) of UTC; without any, the last thirty days. A longer time
    than `LONGEST` days is cut at its beginning."""
    until = _midnight(min(until or now, now) - timedelta(microseconds=1)) + STEPS["day"]
    since = _midnight(since or until - 30 * STEPS["day"])
    since = min(max(since, until - LONGEST * STEPS["day"]), until - STEPS["day"])
    if by not in STEPS:
        by = "day" if until - since <= BY_DAY * STEPS["day"] else "week"
    return (since - timedelta(days=since.weekday()) if by == "week" else since), until, by


def figures(see: See, since: datetime, until: datetime, by: str, pool: str = "") -> Figures:
    """In two queries, of cases that the person sees (`access.seeing`). `since`, `until` and `by` as from `span`."""
    whole, causes = Bucket(), {}
    buckets = {at: Bucket(at) for at in _starts(since, until, by)}
    cases = {case.pk: case for case in _cases(see, since, until, pool)}
    decisions: dict[int, list[Any]] = defaultdict(list)
    for row in _decisions(see, since, until, pool):
        decisions[row[0]].append(row[1:])
    for case in cases.values():
        cause = causes.setdefault(case.code, Bucket(code=case.code))
        for into in (whole, cause, buckets[_start(case.opened, since, by)]):
            _count(into, case, decisions.get(case.pk, ()))
    return Figures(since, until, by, whole, list(buckets.values()),
                   sorted(causes.values(), key=lambda one: (-one.cases, one.code)))  # fmt: skip


def _cases(see: See, since: datetime, until: datetime, pool: str) -> Iterator[_Case]:
    first = Evidence.objects.filter(case=OuterRef("pk")).order_by("pk").values(said=KT("assessment__primary__first"))
    rows = see(counted(Case.objects.filter(opened_at__gte=since, opened_at__lt=until)))
    if pool:
        rows = rows.filter(pool__name=pool)
    rows = rows.annotate(sign=Subquery(first[:1])).order_by("pk")
    return map(_Case._make, rows.values_list("pk", "code", "opened_at", "closed_at", "resolution", "sign"))


def _decisions(see: See, since: datetime, until: datetime, pool: str) -> Iterable[tuple[Any, ...]]:
    rows = Decision.objects.filter(kind__in=_KINDS, case__opened_at__gte=since, case__opened_at__lt=until)
    rows = see(rows, prefix="case__")
    if pool:
        rows = rows.filter(case__pool__name=pool)
    return rows.order_by("pk").values_list(
        "case_id", "kind", "at", "undone_at", "repair__state", "repair__opened_at", "repair__closed_at"
    )


def _count(into: Bucket, case: _Case, decisions: Iterable[tuple[Any, ...]]) -> None:
    by_hand = case.code == BY_HAND
    into.cases += 1
    repaired, first = False, True
    for kind, at, undone, state, begun, ended in decisions:
        if undone is None and first and not by_hand:
            first = False
            into.spans[f"decide_{'policy' if kind == 'auto' else 'person'}"].append(_seconds(case.opened, at))
        if state is None:
            continue
        repaired |= state != State.CANCELLED
        into.repairs["by_hand" if by_hand else _KINDS[kind]] += 1
        into.ended[state if ended else ""] += 1
        if state == State.SUCCEEDED:
            into.spans["repair"].append(_seconds(begun, ended))
    if not by_hand and (sign := parse_time(case.sign)):
        into.spans["detect"].append(_seconds(sign, case.opened))
    if case.closed is not None:
        into.closed += 1
        into.outcomes[case.resolution] += 1
        into.false_alarms += case.resolution in FALSE and not repaired and not by_hand


def _seconds(begin: datetime, end: datetime) -> float:
    return max((end - begin).total_seconds(), 0)


def _rank(ordered: list[float], share: float) -> float | None:
    """The smallest value that at least this share of them does not exceed (nearest rank)."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _starts(since: datetime, until: datetime, by: str) -> Iterator[datetime]:
    at = since
    while at < until:
        yield at
        at += STEPS[by]


def _start(at: datetime, since: datetime, by: str) -> datetime:
    return since + (at - since) // STEPS[by] * STEPS[by]


#: columns of an exported day or week
COLUMNS = (
    "start", "cases", "closed", "false_alarms", *(f"repairs_{name}" for name in DECIDERS),
    *(f"ended_{name}" for name in ("succeeded", "failed", "cancelled")),
    *(f"{name}_{what}_s" for name in SPANS for what in ("median", "p90")),
)  # fmt: skip


def row(bucket: Bucket) -> dict[str, Any]:
    """One day or week with plain values; times in seconds, None where there is none."""
    spreads = {name: bucket.spread(name) for name in SPANS}
    return {
        "start": bucket.start, "cases": bucket.cases, "closed": bucket.closed, "false_alarms": bucket.false_alarms,
        **{f"repairs_{name}": bucket.repairs[name] for name in DECIDERS},
        **{f"ended_{state.lower()}": bucket.ended[state] for state in ("SUCCEEDED", "FAILED", "CANCELLED")},
        **{f"{name}_median_s": spreads[name].median for name in SPANS},
        **{f"{name}_p90_s": spreads[name].p90 for name in SPANS},
    }  # fmt: skip


def plain(found: Figures) -> dict[str, Any]:
    whole = found.whole
    return {
        "since": found.since, "until": found.until, "by": found.by, "cases": whole.cases, "closed": whole.closed,
        "false_alarms": whole.false_alarms, "false_alarm_means": FALSE_IN_WORDS,
        "outcomes": {str(name): whole.outcomes[str(name)] for name in Resolution if name != Resolution.MERGED},
        "repairs": {name: whole.repairs[name] for name in DECIDERS},
        "ended": {state.lower(): whole.ended[state] for state in ("SUCCEEDED", "FAILED", "CANCELLED")},
        "times": {name: {"count": (s := whole.spread(name)).count, "median_s": s.median, "p90_s": s.p90} for name in SPANS},
        "causes": [
            {"code": one.code, "title": one.title, "cases": one.cases, "closed": one.closed,
             "false_alarms": one.false_alarms, "helped": sum(one.outcomes[name] for name in words.HELPED)}
            for one in found.causes
        ],
        "items": [row(bucket) for bucket in found.buckets],
    }  # fmt: skip

"""Ready to switch on? What was only observed beside what people did about it: in repairs, GPU-hours and false alarms.

Of each case the first repair that would have begun by itself counts, and how that case went without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Avg, F, QuerySet

from healthboard import clock
from healthboard.cases import outcomes
from healthboard.cases.models import Case, WouldHave
from healthboard.cases.states import Resolution
from healthboard.repairs.models import Repair
from healthboard.repairs.recipes import minutes, recipe

DAYS = (7, 30, 90)
#: rows that are compared, the newest; cases that a row lists
MOST, LISTED = 5000, 5
#: somebody or something ended the machine or its fault: the finding was right
ENDED = (
    Resolution.REPAIRED, Resolution.REPLACED_BY_GROUP, Resolution.REPLACED_BY_ECS, Resolution.INSTANCE_GONE,
)  # fmt: skip


@dataclass(slots=True)
class Row:
    """One code of one policy (or of the fleet that only observes)."""

    held_by: str
    policy: str
    policy_id: int | None
    code: str
    repairs: int = 0  # cases in which a repair would have begun by itself
    asked: int = 0  # cases in which a person would only have been asked
    actions: dict[str, int] = field(default_factory=dict)
    same: int = 0  # people did just that
    other: int = 0  # people repaired it otherwise
    ended: int = 0  # no repair of ours, but the machine was ended or started anew
    alarms: int = 0  # dismissed, or clear by itself
    open: int = 0  # not known yet
    waited_h: float = 0.0  # GPU-hours from then until somebody acted, where the finding was right
    wasted_h: float = 0.0  # GPU-hours that the repairs of false alarms would have taken
    cases: list[int] = field(default_factory=list)  # some of the false alarms, else of all

    @property
    def known(self) -> int:
        return self.same + self.other + self.ended + self.alarms

    @property
    def right(self) -> int:
        return self.known - self.alarms

    @property
    def verdict(self) -> str:
        """ready, wait or not, by what the numbers make sure."""
        low, high = outcomes.interval(self.right, self.known)
        return "ready" if low >= outcomes.GOOD else "not" if high < outcomes.GOOD else "wait"

    @property
    def missing(self) -> int:
        return outcomes.missing(self.right, self.known)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    days: int
    rows: list[Row]
    cut: bool  # only the newest were compared
    acting: bool


def of(see: Callable[..., QuerySet], *, days: int, acting: bool, policy: int | None = None) -> Rehearsal:
    """Four queries. `see` narrows to what the person sees (`access.seeing`); `policy`: of this one alone."""
    since = clock.now() - timedelta(days=days)
    rows = see(WouldHave.objects.filter(at__gte=since), prefix="case__")
    if policy is not None:
        rows = rows.filter(policy_version__policy=policy)
    rows = rows.select_related("case__instance", "policy_version__policy").defer("case__plan", "policy_version__data")
    noted = list(rows.order_by("-at", "-pk")[: MOST + 1])
    first: dict[tuple[int, str], WouldHave] = {}
    for one in reversed(noted[:MOST]):  # a repair by itself goes before a question of the same case
        key = one.case_id, one.held_by
        if key not in first or (first[key].mode != "auto" and one.mode == "auto"):
            first[key] = one
    done = _repairs(first.values(), since)
    lasted = _lasted(see, since)
    found: dict[tuple[Any, ...], Row] = {}
    for one in first.values():
        of_policy = one.policy_version.policy if one.policy_version else None
        key = one.held_by, of_policy and of_policy.pk, one.code
        row = found.setdefault(key, Row(one.held_by, str(of_policy or "built-in defaults"), key[1], one.code))
        _count(row, one, done.get(one.case.instance_id, ()), lasted)
    ordered = sorted(found.values(), key=lambda r: (r.held_by, r.policy, -r.repairs, r.code))
    return Rehearsal(days, ordered, len(noted) > MOST, acting)


def _count(row: Row, one: WouldHave, done: Iterable[tuple[Any, ...]], lasted: dict[str, float]) -> None:
    if one.mode != "auto":
        row.asked += 1
        return
    case = one.case
    row.repairs += 1
    row.actions[one.action] = row.actions.get(one.action, 0) + 1
    end = case.closed_at or clock.now()
    began = next(((action, at) for action, at in done if one.at <= at <= end), None)
    if began is not None:
        row.same += began[0] == one.action
        row.other += began[0] != one.action
        row.waited_h += _gpu_hours(one, began[1])
    elif case.closed_at is None:
        row.open += 1
    elif case.resolution in ENDED or _booted_since(case, one.at):
        row.ended += 1
        row.waited_h += _gpu_hours(one, end)
    elif case.resolution in (Resolution.DISMISSED, Resolution.CLEARED):
        row.alarms += 1
        row.wasted_h += one.gpus * lasted.get(one.action, _planned(one) / 60)
        if len(row.cases) < LISTED:
            row.cases.append(case.pk)
    else:  # merged into another case, or taken back: says nothing about the finding
        row.open += 1


def _gpu_hours(one: WouldHave, until: datetime) -> float:
    return one.gpus * max((until - one.at).total_seconds(), 0) / 3600


def _booted_since(case: Case, at: datetime) -> bool:
    return bool(case.instance and case.instance.booted_at and case.instance.booted_at > at)


def _planned(one: WouldHave) -> float:
    return minutes(recipe(one.action, one.case.instance.owner)) if one.case.instance else 0.0


def _repairs(noted: Iterable[WouldHave], since: datetime) -> dict[int, list[tuple[str, datetime]]]:
    """Instance -> what people had done to it, oldest first."""
    instances = {one.case.instance_id for one in noted}
    rows = Repair.objects.filter(instance__in=instances, opened_at__gte=since, automatic=False)
    found: dict[int, list[tuple[str, datetime]]] = defaultdict(list)
    for instance, action, at in rows.order_by("opened_at").values_list("instance_id", "action", "opened_at"):
        found[instance].append((action, at))
    return found


def _lasted(see: Callable[..., QuerySet], since: datetime) -> dict[str, float]:
    """Action -> hours that repairs of this time took here, on average, of those that the person sees."""
    rows = see(Repair.objects.filter(closed_at__gte=since, state="SUCCEEDED"), prefix="instance__").values("action")
    return {
        action: spent.total_seconds() / 3600
        for action, spent in rows.annotate(spent=Avg(F("closed_at") - F("opened_at"))).values_list("action", "spent")
    }

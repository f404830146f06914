"""Precedent as statistics: what reboot, replacement and nothing came to, by signature: codes, instance type and driver.

Numbers alone, so they may count what a reader does not see by name. They suggest; nothing is changed by them.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from healthboard import clock, words
from healthboard.cases import outcomes
from healthboard.cases.models import BY_HAND, Case, Decision
from healthboard.cases.states import Resolution, State
from healthboard.policies import versions
from healthboard.policies.fields import MODE_NAMES, more_careful_mode
from healthboard.policies.models import Policy

DAYS = 180
#: the same code on the same machine, or on the one in its place, so soon afterwards: it did not help
BACK = timedelta(days=7)
#: cases that are read, the newest; codes and signatures that are shown
MOST, CODES, SIGNATURES = 5000, 20, 3
NOTHING = "NONE"
#: ends that say nothing about what helps
SILENT = (Resolution.MERGED, Resolution.RELEASED, Resolution.WITHDRAWN, Resolution.DONE)


class Past(NamedTuple):
    """One closed case, as far as it counts."""

    code: str
    verdict: str
    instance_type: str
    driver: str
    resolution: str
    proposed: str
    done: str  # the action of the repair that stood; None where there was none
    kind: str  # of the decision that it rested on; None without one
    opened_at: Any
    closed_at: Any
    back: bool

    @property
    def well(self) -> bool:
        """It ended as one would wish, and stayed so: repaired, or clear where nothing was done."""
        good = words.HELPED if self.done else (*words.HELPED, Resolution.CLEARED)
        return self.resolution in good and not self.back

    @property
    def as_proposed(self) -> bool:
        return self.done == self.proposed and self.kind != Decision.Kind.OVERRIDE


@dataclass(frozen=True, slots=True)
class Treatment:
    """What one action came to."""

    action: str
    cases: int
    well: int
    back: int
    seconds: float  # median, from the opened to the closed case


@dataclass(frozen=True, slots=True)
class Signature:
    instance_type: str
    driver: str
    cases: int
    treatments: list[Treatment]


@dataclass(slots=True)
class OfCase:
    """For the page of a case: exactly its signature, and with any driver."""

    days: int
    driver: str
    same: list[Treatment]
    any_driver: list[Treatment]


@dataclass(slots=True)
class OfCode:
    """For the policy form: what happened to a code's cases, and whether that speaks for another mode."""

    code: str
    mode: str  # as the policy stands
    cases: int
    treatments: list[Treatment]
    right: int  # the proposed repair was carried out and ended well
    known: int  # of so many that tell
    signatures: list[Signature] = field(default_factory=list)

    @property
    def suggests(self) -> str:
        """auto, ask, or empty where the numbers do not speak for a change."""
        low, high = outcomes.interval(self.right, self.known)
        if self.mode == "auto":
            return "ask" if high < outcomes.GOOD else ""
        return "auto" if low >= outcomes.GOOD else ""

    @property
    def missing(self) -> int:
        return outcomes.missing(self.right, self.known)


def of_case(case: Case) -> OfCase | None:
    """None for a group or a wish by hand. One query."""
    if case.instance is None or case.by_hand:
        return None
    alike = Case.objects.filter(
        code=case.code, codes=case.codes, instance__instance_type=case.instance.instance_type
    ).exclude(pk=case.pk)  # fmt: skip
    past = [_read(row) for row in _past(alike)[:MOST]]
    driver = case.instance.driver_version
    return OfCase(DAYS, driver, treatments(one for one in past if one.driver == driver), treatments(past))


def of_policy(see: Callable[..., QuerySet], policy: Policy | None) -> list[OfCode]:
    """The commonest codes among the cases that the policy matches by name and that the person sees; without a policy,
    among all of them. Tags are not looked at: what carried them then is not known."""
    seen = see(Case.objects.exclude(code=BY_HAND).exclude(instance=None))
    seen = seen.filter(_matches(policy)) if policy is not None else seen
    by_code: dict[str, list[Past]] = defaultdict(list)
    for row in _past(seen)[:MOST]:
        past = _read(row)
        by_code[past.code].append(past)
    values = versions.resolved(policy) if policy is not None else versions.resolved(Policy())
    ordered = sorted(by_code.items(), key=lambda kv: (-len(kv[1]), kv[0]))[:CODES]
    return [_of_code(code, past, values) for code, past in ordered]


def treatments(past: Iterable[Past]) -> list[Treatment]:
    by_action: dict[str, list[Past]] = defaultdict(list)
    for one in past:
        by_action[one.done or NOTHING].append(one)
    found = [
        Treatment(
            action, len(of), sum(one.well for one in of), sum(one.back for one in of),
            statistics.median((one.closed_at - one.opened_at).total_seconds() for one in of),
        )
        for action, of in by_action.items()
    ]  # fmt: skip
    return sorted(found, key=lambda t: (-t.cases, t.action))


def _of_code(code: str, past: list[Past], values: Mapping[str, Any]) -> OfCode:
    telling = [one for one in past if one.done or one.resolution in (Resolution.DISMISSED, Resolution.CLEARED)]
    found = OfCode(
        code, _mode(code, past, values), len(past), treatments(past),
        right=sum(one.as_proposed and one.well for one in telling), known=len(telling),
    )  # fmt: skip
    if found.mode == "auto":  # whether what it did alone ended well
        alone = [one for one in past if one.kind == Decision.Kind.AUTO]
        found.right, found.known = sum(one.well for one in alone), len(alone)
    by_signature: dict[tuple[str, str], list[Past]] = defaultdict(list)
    for one in past:
        by_signature[one.instance_type, one.driver].append(one)
    largest = sorted(by_signature.items(), key=lambda kv: (-len(kv[1]), kv[0]))[:SIGNATURES]
    found.signatures = [Signature(*key, len(of), treatments(of)) for key, of in largest]
    return found


def _mode(code: str, past: list[Past], values: Mapping[str, Any]) -> str:
    """Of the code as the decisive one: its exception's, else its verdict's; the more careful of two verdicts."""
    entry = values["codes"].get(code, {})
    names = {"HARDWARE": MODE_NAMES[0], "AMBIGUOUS": MODE_NAMES[1]}
    seen = Counter(names[one.verdict] for one in past if one.verdict in names) or Counter([MODE_NAMES[1]])
    return more_careful_mode(entry.get(name) or entry.get("mode") or values[name] for name in seen)


def _matches(policy: Policy) -> Q:
    wanted = Q()
    for path, value in (
        ("account__account_id", policy.account), ("region", policy.region), ("instance__cluster__name", policy.cluster),
        ("pool__name", policy.pool), ("workloads__name", policy.workload),
    ):  # fmt: skip
        if value:
            wanted &= Q(**{path: value})
    return wanted


def _past(cases: QuerySet[Case]) -> QuerySet:
    """Rows for `_read`, newest first."""
    stood = Decision.objects.filter(case=OuterRef("pk"), undone_at=None, repair__isnull=False).order_by("-at", "-pk")
    soon = Case.objects.filter(
        code=OuterRef("code"), opened_at__gt=OuterRef("closed_at"), opened_at__lte=OuterRef("closed_at") + BACK
    )
    rows = cases.filter(state=State.CLOSED, closed_at__gte=clock.now() - timedelta(days=DAYS)).exclude(
        resolution__in=SILENT
    )
    rows = rows.annotate(
        done=Subquery(stood.values("action")[:1]), kind=Subquery(stood.values("kind")[:1]),
        successor=Subquery(stood.values("repair__replacement")[:1]),
        back_there=Exists(soon.filter(instance=OuterRef("instance"))),
    ).annotate(back_in_place=Exists(soon.filter(instance=OuterRef("successor"))))  # fmt: skip
    return rows.order_by("-closed_at", "-pk").values_list(
        "code", "verdict", F("instance__instance_type"), F("instance__driver_version"), "resolution", "action", "done",
        "kind", "opened_at", "closed_at", "back_there", "back_in_place",
    )  # fmt: skip


def _read(row: tuple[Any, ...]) -> Past:
    *facts, done, kind, opened, closed, there, place = row
    return Past(*facts, done, kind, opened, closed, there or place)

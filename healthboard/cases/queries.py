"""Reads about cases: the inbox's tabs, one case with all that a page shows of it, and what was done before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from healthboard import clock, words
from healthboard.audit.models import AuditRow
from healthboard.cases import urgency
from healthboard.cases.models import Case, Decision
from healthboard.cases.standstill import Standstill
from healthboard.cases.states import State
from healthboard.fleet.models import JobStop, NodeRequest
from healthboard.repairs.models import Repair, Step
from healthboard.repairs.states import State as Stage

#: evidence from so long before a case opened belongs to its story
BEFORE = timedelta(minutes=15)
#: tab -> (its name, what it means when it is empty)
TABS = {
    "waiting": ("Waiting", "Nothing waits for a person."),
    "running": ("Running", "No repair is scheduled or under way."),
    "failed": ("Failed verification", "No open case has a repair behind it that did not help."),
    "itself": ("Repaired by itself today", "Policies repaired nothing since midnight UTC."),
    "repaired": ("Repaired today", "Nothing was repaired since midnight UTC."),
    "held": ("Held by a breaker", "No case is held."),
    "snoozed": ("Snoozed", "No case is snoozed."),
    "observed": ("Observed", "No case is only observed."),
}


def _tab_filters(now: datetime) -> dict[str, Q]:
    by_policy = Decision.objects.filter(case=OuterRef("pk"), kind="auto", undone_at=None, repair__isnull=False)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        "waiting": Q(state=State.WAITING),
        "running": Q(state=State.DECIDED),
        "failed": Q(closed_at=None, tries__gt=0),
        "itself": Q(state=State.CLOSED, resolution__in=words.HELPED, closed_at__gte=midnight) & Q(Exists(by_policy)),
        "repaired": Q(state=State.CLOSED, resolution__in=words.HELPED, closed_at__gte=midnight),
        "held": Q(state=State.HELD),
        "snoozed": Q(state=State.SNOOZED),
        "observed": Q(state=State.OBSERVED),
    }


def tab_counts(seen: QuerySet[Case]) -> dict[str, int]:
    """Rows behind each tab among the cases that a person sees, in one query; equal to what `tab` lists."""
    filters = _tab_filters(clock.now())
    return seen.aggregate(**{name: Count("pk", filter=f) for name, f in filters.items()})


#: what a row of a tab shows, is put in order by or exports; whole rows are long, with those that hang on them
_ROW = (
    "region", "state", "resolution", "resolution_note", "verdict", "action", "mode", "mode_why", "code", "codes", "title",
    "why", "why_waiting", "victims", "plan", "plan_version", "evidence_hash", "opened_at", "changed_at", "evidence_at",
    "expires_at", "expired_at", "snoozed_until", "closed_at", "tries", "account__account_id", "pool__name",
    "instance__instance_id", "instance__instance_type", "instance__zone", "instance__gone_at", "instance__tasks_running",
    "instance__gpus_expected",
)  # fmt: skip


def tab(seen: QuerySet[Case], name: str) -> QuerySet[Case]:
    """Cases of one tab among `seen`, newest change first, with what a row shows."""
    rows = seen.filter(_tab_filters(clock.now())[name])
    members = Case.objects.filter(parent=OuterRef("pk")).order_by().values("parent").annotate(n=Count("pk")).values("n")
    return (
        rows.select_related("account", "instance", "pool")
        .only(*_ROW)
        .annotate(member_count=Coalesce(Subquery(members), 0))
        .prefetch_related("workloads")
        .order_by("-changed_at", "-pk")
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the inbox: the case, whose it is, what stands still because of it."""

    case: Case
    why_not: str | None  # None: this person may decide it
    tasks: int
    gpus: int
    workloads: list[str]
    repair: Repair | None = None
    standing: Standstill | None = None  # the jobs behind it
    worse: str = ""  # in which way it gets worse
    reasons: tuple[urgency.Reason, ...] = ()  # why it stands where it stands


def impact(case: Case) -> tuple[int, int, list[str]]:
    """(tasks, GPUs, workloads) that stand on the case's instance, as the plan counted them."""
    tasks = case.plan.get("tasks_total")
    names = [str(row.get("workload", "")) for row in case.plan.get("tasks", [])]
    if case.instance is None:
        return tasks or 0, case.plan.get("gpus", 0), names
    if tasks is None:
        tasks = case.instance.tasks_running
    return tasks, case.instance.gpus_expected or 0, names or [w.name for w in case.workloads.all()]


def latest_repairs(cases: Iterable[Case]) -> dict[int, Repair]:
    """The newest repair of each case, by the case's id, with what a row shows of it."""
    decisions = (
        Decision.objects.filter(case__in=list(cases), repair__isnull=False)
        .select_related("repair")
        .only("case", *(f"repair__{name}" for name in ("state", "step", "why_waiting", "closed_at")))
        .order_by("pk")
    )
    return {decision.case_id: decision.repair for decision in decisions}


def get(case_id: int) -> Case | None:
    """With what hangs on it; its instance's account and pool are the case's own, so that they are read once."""
    rows = Case.objects.select_related("account", "pool", "breaker", "policy_version", "instance__cluster")
    found = rows.defer("instance__owner_evidence").prefetch_related("workloads").filter(pk=case_id).first()
    if found is not None and (one := found.instance) is not None:
        if one.account_id == found.account_id:
            one.account = found.account
        if one.pool_id == found.pool_id:  # else it has moved since
            one.pool = found.pool
    return found


def decisions(case: Case) -> list[Decision]:
    return list(
        case.decisions.select_related("repair__replacement", "policy_version")
        .defer("repair__settings", "repair__replacement__owner_evidence")
        .order_by("-pk")
    )


def members(see: Callable[..., QuerySet], case: Case) -> list[Case]:
    """Members of a group case that the person sees (`access.seeing`), those still open first."""
    seen = see(case.members.select_related("instance", "pool", "account"))
    return list(seen.order_by("closed_at", "instance__instance_id")[:100])


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a case's timeline."""

    anchor: str
    at: datetime
    actor: str
    via: str
    kind: str  # evidence, or the audit verb
    text: str
    count: int = 1
    detail: str = ""
    verified: bool = False


def timeline(case: Case, repairs: list[Repair], most: int = 300) -> list[Moment]:
    """Evidence and audit rows of the case and its repairs, oldest first; the newest `most` of each."""
    about = Q(case_id=case.pk) | Q(repair_id__in=[repair.pk for repair in repairs])
    moments = [
        Moment(f"a{row.pk}", row.at, row.actor, row.via, row.verb, row.summary)
        for row in AuditRow.objects.filter(about).order_by("-pk")[:most]
    ]
    if case.instance is not None:
        since = min(case.opened_at, case.evidence_at) - BEFORE
        events = case.instance.events.filter(last_at__gte=since)
        if case.closed_at is not None:
            events = events.filter(at__lte=case.closed_at)
        moments += [
            Moment(f"e{row.pk}", row.at, row.source, "evidence", row.code, row.text, row.count, row.gpu)
            for row in events.order_by("-last_at")[:most]
        ]
    return sorted(moments, key=lambda moment: (moment.at, moment.anchor))


def case_version(case: Case, asked: list[NodeRequest]) -> list[Any]:
    """Cheap values that change whenever the case's page would, beside the row itself, which was just read, and what its
    node was asked for."""
    repairs = Decision.objects.filter(case=case).values_list(
        "pk", "outcome", "undone_at", "repair", "repair__state", "repair__step", "repair__why_waiting",
        "repair__stop_asked_by",
    )  # fmt: skip
    moves = list(repairs)
    known = [move[3] for move in moves if move[3]]
    steps = known and Step.objects.filter(repair__in=known).aggregate(
        n=Count("pk", distinct=True), last=Max("ended_at"), made=Count("calls", distinct=True),
        answered=Max("calls__answered_at"),
    )  # fmt: skip
    one = case.instance
    members = Case.objects.filter(parent=case).values_list("pk", "state") if one is None else ()
    return [
        [case.state, case.changed_at, case.plan_version, case.evidence_hash],
        one and [one.pk, one.evidence_at],
        [(row.pk, row.delivered_at, row.answered_at) for row in asked],
        moves,
        steps,
        AuditRow.objects.filter(case_id=case.pk).aggregate(n=Count("pk")),
        list(members),
        JobStop.objects.aggregate(n=Count("pk"), stop=Max("at")),
    ]


def list_version(seen: QuerySet[Case]) -> list[Any]:
    """Cheap values that change whenever the list of cases would."""
    return [seen.aggregate(n=Count("pk"), changed=Max("changed_at")), Decision.objects.aggregate(pk=Max("pk"))]


def tab_version(counts: dict[str, int], name: str) -> list[Any]:
    """Cheap values that change whenever a tab would; `counts` as from `tab_counts`."""
    newest = Case.objects.aggregate(changed=Max("changed_at"), pk=Max("pk"))
    moving = list(Repair.objects.filter(closed_at=None).values_list("pk", "state", "step", "why_waiting")[:500])
    told, shown = None, moving if name in ("running", "failed") else len(moving)
    if name == "waiting":  # a fault that comes again, or a job that stops, changes the order and touches no case
        told = Case.objects.filter(state=State.WAITING).aggregate(at=Max("instance__evidence_at"))
        told |= JobStop.objects.aggregate(n=Count("pk"), stop=Max("at"))
        shown = [row for row in moving if row[1] == Stage.ASKING]  # they stand above the cases
    return [name, counts, newest, shown, told]

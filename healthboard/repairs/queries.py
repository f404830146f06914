"""Reads about repairs: those under way, those past, and one with its steps."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Exists, F, Max, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce, NullIf

from healthboard import spans
from healthboard.fleet import foreign
from healthboard.fleet.models import Instance, Pool
from healthboard.repairs.models import Breaker, Call, Occupancy, Pause, Repair, Step
from healthboard.repairs.states import CLOSED, OPEN, State

_WITH = ("instance__account", "instance__pool", "pool", "replacement", "policy_version__policy", "decision__case")

#: what a row of the list shows or exports; whole rows are long, with those that hang on them
_ROW = (
    "action", "state", "step", "why_waiting", "automatic", "requested_by", "opened_at", "not_before", "closed_at",
    "outcome", "outcome_why", "stop_asked_by", "pool__name", "replacement__instance_id", "decision__case",
    "instance__instance_id", "instance__zone", "instance__region", "instance__account__account_id",
)  # fmt: skip


def _listed(rows: QuerySet[Repair]) -> QuerySet[Repair]:
    return rows.select_related("instance__account", "pool", "replacement", "decision").only(*_ROW)


def running(seen: QuerySet[Repair]) -> list[Repair]:
    """Open repairs, those that ask a person first, then the oldest; each with its steps that are `done`, out of those
    that are `planned`, which are at least one."""
    rows = _listed(seen.filter(closed_at=None)).annotate(plan_steps=F("plan__steps")).order_by("opened_at")[:200]
    found = sorted(rows, key=lambda repair: repair.state != State.ASKING)
    taken = {pk: numbers for pk, *numbers in _steps(found)} if found else {}
    for row in found:
        begun, row.done = taken.get(row.pk, (0, 0))
        row.planned = max(len(row.plan_steps or ()), begun, 1)
    return found


def _steps(of: list[Repair]) -> QuerySet[Step, tuple[int, ...]]:
    """(repair, steps that it took so far, those that are over)."""
    over = Count("pk", filter=Q(state__in=("DONE", "SKIPPED")))
    rows = Step.objects.filter(repair__in=[row.pk for row in of]).order_by()
    return rows.values("repair").annotate(begun=Count("pk"), over=over).values_list("repair", "begun", "over")


def past(seen: QuerySet[Repair], params: dict[str, str]) -> QuerySet[Repair]:
    """Ended repairs by the filters of an address: `state`, `pool`, `action`, `by` (``itself``, or part of a name),
    `since` (a date, UTC, included), `q` (instance id). None where a state before the end is asked for; another bad value
    is left out."""
    if params.get("state") in list(OPEN):
        return seen.none()
    rows = _listed(_chosen(seen.filter(closed_at__isnull=False), params))
    if params.get("state") in list(CLOSED):
        rows = rows.filter(state=params["state"])
    if since := spans.begin(params.get("since", "")):
        rows = rows.filter(closed_at__gte=since)
    return rows


def under_way(seen: QuerySet[Repair], params: dict[str, str]) -> QuerySet[Repair]:
    """Open repairs by the same filters, `state` being one of theirs; none where an end is asked for (`state`, `since`),
    since they have none."""
    if params.get("state") in list(CLOSED) or spans.begin(params.get("since", "")):
        return seen.none()
    rows = _chosen(seen.filter(closed_at=None), params)
    return rows.filter(state=params["state"]) if params.get("state") in list(OPEN) else rows


def _chosen(rows: QuerySet[Repair], params: dict[str, str]) -> QuerySet[Repair]:
    """By what a repair has before its end too: `pool`, `action`, `by`, `q`."""
    if params.get("pool"):
        rows = rows.filter(pool__name=params["pool"])
    if params.get("action"):
        rows = rows.filter(action=params["action"])
    if params.get("by") == "itself":
        rows = rows.filter(automatic=True)
    elif params.get("by"):
        rows = rows.filter(automatic=False, requested_by__icontains=params["by"])
    if params.get("q"):
        rows = rows.filter(
            Q(instance__instance_id__icontains=params["q"]) | Q(replacement__instance_id__icontains=params["q"])
        )
    return rows


def before(rows: QuerySet[Repair], key: list[Any] | None) -> QuerySet[Repair]:
    """Newest end first, continued after the last row shown."""
    if key is not None:
        rows = rows.filter(Q(closed_at__lt=key[0]) | Q(closed_at=key[0], pk__lt=key[1]))
    return rows.order_by("-closed_at", "-pk")


def get(seen: QuerySet[Repair], pk: int) -> Repair | None:
    return seen.select_related(*_WITH, "instance__cluster").filter(pk=pk).first()


def version(pk: int | None = None) -> list[Any]:
    """Cheap values that change whenever the list, or one repair's page, would."""
    rows = Repair.objects.filter(pk=pk) if pk else Repair.objects.filter(closed_at=None)
    marks = rows.values_list("pk", "state", "step", "why_waiting", "stop_asked_by", "replacement")
    steps = Step.objects.filter(repair__in=rows).aggregate(n=Count("pk"), ended=Max("ended_at"))
    calls = Call.objects.filter(repair__in=rows).aggregate(n=Count("pk"), answered=Max("answered_at"))
    return [list(marks), steps, calls, Repair.objects.aggregate(closed=Max("closed_at"))]


def occupied() -> dict[int, int]:
    """Units of budget that repairs hold now, by pool."""
    rows = Occupancy.objects.filter(released_at=None).values_list("pool_id", "units")
    sums: dict[int, int] = {}
    for pool_id, units in rows:
        sums[pool_id] = sums.get(pool_id, 0) + units
    return sums


def pauses(see: foreign.See) -> QuerySet[Pause]:
    """Those that concern a person's places (`access.seeing`): of these, and of the whole fleet; of a pool or an instance
    where they see it, since the pause names it."""
    return _of_places(see, Pause.objects.all())


def breakers(see: foreign.See) -> QuerySet[Breaker]:
    """Likewise: one of a pool where the person sees it. What is wider (a zone, an image, a driver, a type, a workload,
    the whole place) may hold their machines too."""
    return _of_places(see, Breaker.objects.all())


def _of_places(see: foreign.See, every: QuerySet[Any]) -> QuerySet[Any]:
    if foreign.sees_all(see):
        return every
    # one without account or region is of whatever has the name
    place = {
        "account": Coalesce(OuterRef("account"), F("account")),
        "region": Coalesce(NullIf(OuterRef("region"), Value("")), F("region")),
    }
    pool = see(Pool.objects.all(), pool="name").filter(name=OuterRef("scope"), **place)
    instance = see(Instance.objects.all()).filter(instance_id=OuterRef("scope"), **place)
    named = Q(Exists(pool), scope_kind="pool") | Q(Exists(instance), scope_kind="instance")
    rows = see(every, pool="") | every.filter(account=None)
    return rows.filter(named | ~Q(scope_kind__in=("pool", "instance")))


#: columns of an exported row
COLUMNS = (
    "id", "instance_id", "account", "region", "pool", "action", "state", "step", "automatic", "requested_by",
    "replacement", "opened_at", "closed_at", "outcome", "outcome_why",
)  # fmt: skip


def as_dict(repair: Repair) -> dict[str, Any]:
    """A row for CSV and JSON."""
    return {
        "id": repair.pk,
        "instance_id": repair.instance.instance_id,
        "account": repair.instance.account.account_id,
        "region": repair.instance.region,
        "pool": repair.pool.name if repair.pool else "",
        "action": repair.action,
        "state": repair.state,
        "step": repair.step,
        "automatic": repair.automatic,
        "requested_by": repair.requested_by,
        "replacement": repair.replacement.instance_id if repair.replacement else "",
        "opened_at": repair.opened_at,
        "closed_at": repair.closed_at,
        "outcome": repair.outcome,
        "outcome_why": repair.outcome_why,
    }

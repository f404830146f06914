"""What was done before for the same signature: the decisive code and all codes together, on the same instance type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet

from healthboard import words
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import State

MOST = 10
#: what is shown of a decision
_SHOWN = ("case", "kind", "action", "actor", "reason")


def of(see: Callable[..., QuerySet], case: Case) -> dict[str, Any]:
    """Sums and what each action came to, of all cases; who overrode, and the newest ten cases, those with exactly the
    same codes first, only of those that the person sees (`access.seeing`). `unseen`: how many others there are;
    `like`: the query string of the list that the counts link to.

    At most five queries, however many cases there were.
    """
    same = Case.objects.filter(code=case.code, state=State.CLOSED).exclude(pk=case.pk)
    if case.instance is None:
        same = same.filter(instance=None)
    else:
        same = same.filter(instance__instance_type=case.instance.instance_type)
    seen, alike = see(same), Q(codes=case.codes)
    stood = Decision.objects.filter(undone_at=None)
    sums = same.aggregate(
        total=Count("pk"),
        overridden=Count("pk", filter=Exists(stood.filter(case=OuterRef("pk"), kind="override"))),
        unseen=Count("pk", filter=~Q(pk__in=seen.values("pk")) if seen is not same else Q(pk__in=[])),
        exact=Count("pk", filter=alike),
        helped=Count("pk", filter=Q(resolution__in=words.HELPED)),
        dismissed=Count("pk", filter=Q(resolution="DISMISSED")),
        cleared=Count("pk", filter=Q(resolution="CLEARED")),
    )
    if not sums["total"]:
        return {**sums, "rows": [], "actions": [], "overrides": [], "like": ""}
    stood = stood.filter(case__in=same)
    actions = (
        stood.filter(repair__isnull=False)
        .values("action")
        .annotate(
            times=Count("case", distinct=True),
            helped=Count("case", distinct=True, filter=Q(case__resolution__in=words.HELPED)),
        )
        .order_by("-times", "action")
    )
    kept = Prefetch("decisions", stood.exclude(kind="snooze").order_by("pk").only(*_SHOWN))
    rows = list(seen.prefetch_related(kept).only("codes", "resolution", "closed_at").order_by("-closed_at")[: MOST * 3])
    for row in rows:
        row.last_decision = next(reversed(row.decisions.all()), None)
        row.exact = row.codes == case.codes
    overrides = stood.filter(kind="override", case__in=seen).only(*_SHOWN).order_by("-at")[:3]
    return {
        **sums,
        "rows": sorted(rows, key=lambda row: not row.exact)[:MOST],
        "actions": list(actions),
        "overrides": list(overrides) if sums["overridden"] else [],
        "like": _address(case),
    }


def _address(case: Case) -> str:
    """The query string of the list of cases that shows the ones counted here, as far as a person sees them."""
    where = case.instance.instance_type if case.instance else "group"
    return urlencode({"state": "closed", "code": case.code, "type": where, "but": case.pk})

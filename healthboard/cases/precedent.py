"""What was done before for the same signature: the decisive code and all codes together, on the same instance type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Q, QuerySet

from healthboard import words
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import State

MOST = 10


def of(see: Callable[..., QuerySet], case: Case) -> dict[str, Any]:
    """Sums and what each action came to, of all cases; who overrode, and the newest ten cases, those with exactly the
    same codes first, only of those that the person sees (`access.seeing`). `unseen`: how many others there are;
    `like`: the query string of the list that the counts link to.

    Six queries, however many cases there were.
    """
    same = Case.objects.filter(code=case.code, state=State.CLOSED).exclude(pk=case.pk)
    if case.instance is None:
        same = same.filter(instance=None)
    else:
        same = same.filter(instance__instance_type=case.instance.instance_type)
    seen, alike = see(same), Q(codes=case.codes)
    sums = same.aggregate(
        total=Count("pk"),
        unseen=Count("pk", filter=~Q(pk__in=seen.values("pk"))),
        exact=Count("pk", filter=alike),
        helped=Count("pk", filter=Q(resolution__in=words.HELPED)),
        dismissed=Count("pk", filter=Q(resolution="DISMISSED")),
        cleared=Count("pk", filter=Q(resolution="CLEARED")),
    )
    if not sums["total"]:
        return {**sums, "rows": [], "actions": [], "overrides": [], "overridden": 0, "like": ""}
    stood = Decision.objects.filter(case__in=same, undone_at=None)
    actions = (
        stood.filter(repair__isnull=False)
        .values("action")
        .annotate(
            times=Count("case", distinct=True),
            helped=Count("case", distinct=True, filter=Q(case__resolution__in=words.HELPED)),
        )
        .order_by("-times", "action")
    )
    rows = list(
        seen.select_related("instance").prefetch_related("decisions__repair").order_by("-closed_at")[: MOST * 3]
    )
    for row in rows:
        kept = [d for d in row.decisions.all() if d.undone_at is None and d.kind != "snooze"]
        row.last_decision = kept[-1] if kept else None
        row.exact = row.codes == case.codes
    overridden = stood.filter(kind="override")
    return {
        **sums,
        "rows": sorted(rows, key=lambda row: not row.exact)[:MOST],
        "actions": list(actions),
        "overrides": list(overridden.filter(case__in=seen).order_by("-at")[:3]),
        "overridden": overridden.values("case").distinct().count(),
        "like": _address(case),
    }


def _address(case: Case) -> str:
    """The query string of the list of cases that shows the ones counted here, as far as a person sees them."""
    where = case.instance.instance_type if case.instance else "group"
    return urlencode({"state": "closed", "code": case.code, "type": where, "but": case.pk})

"""For a screen on the wall: counts and the oldest waiting case, large, without controls."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django.http import HttpRequest, HttpResponse

from healthboard.approve.context import frame
from healthboard.cases import queries
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.fleet.models import Instance
from healthboard.pages import live, page
from healthboard.people import access
from healthboard.repairs.models import Repair


@page
def wall(request: HttpRequest) -> HttpResponse:
    found = context(request)
    oldest = found["oldest"]
    mark = [found["counts"], oldest and [oldest.pk, oldest.changed_at, oldest.expires_at], found["sick"]]
    return live(request, "wall.html", mark, lambda: found, framed=False)


def context(request: HttpRequest) -> dict[str, Any]:
    cases = access.within(request.user, Case.objects.all())
    tabs = queries.tab_counts(cases)
    asking = access.within(request.user, Repair.objects.filter(state="ASKING"), prefix="instance__").count()
    live_instances = access.within(request.user, Instance.objects.filter(gone_at=None))
    verdicts = dict(live_instances.values_list("verdict").annotate(n=Count("pk")).order_by())
    return {
        "counts": [
            ("waiting", tabs["waiting"], "wait for a person", "doubt" if tabs["waiting"] else "good"),
            ("asking", asking, "repairs ask", "doubt" if asking else "good"),
            ("running", tabs["running"], "under repair", "run"),
            ("failed", tabs["failed"], "failed verification", "bad" if tabs["failed"] else "good"),
            ("held", tabs["held"], "held by a breaker", "many" if tabs["held"] else "good"),
            ("repaired", tabs["repaired"], "repaired today", "good"),
        ],
        "oldest": cases.filter(state=State.WAITING).select_related("instance", "pool").order_by("opened_at").first(),
        "sick": [(verdict, verdicts.get(verdict, 0)) for verdict in ("HARDWARE", "AMBIGUOUS", "CORRELATED", "UNKNOWN")],
        "instances": sum(verdicts.values()),
        "state": frame(request),
    }

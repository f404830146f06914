"""For a screen on the wall: counts and the oldest waiting case, large, without controls."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django.http import HttpRequest, HttpResponse

from healthboard.approve import waits
from healthboard.approve.context import frame
from healthboard.cases import queries
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.fleet.models import Instance
from healthboard.pages import live, page
from healthboard.people import access


@page
def wall(request: HttpRequest) -> HttpResponse:
    found = context(request)
    oldest, asks = found["oldest"], found["asks"]
    mark = [found["counts"], oldest and [oldest.pk, oldest.changed_at, oldest.expires_at], found["sick"]]
    mark.append(asks and [asks.pk, asks.step, asks.why_waiting])
    return live(request, "wall.html", mark, lambda: found, framed=False)


def context(request: HttpRequest) -> dict[str, Any]:
    cases = access.within(request.user, Case.objects.all())
    tabs = queries.tab_counts(cases)
    state = frame(request)
    waiting = state.waits
    live_instances = access.within(request.user, Instance.objects.filter(gone_at=None))
    verdicts = dict(live_instances.values_list("verdict").annotate(n=Count("pk")).order_by())
    return {
        "counts": [
            ("waiting", waiting.total, "wait for a person", "doubt" if waiting.total else "good"),
            ("asking", waiting.repairs, "repairs ask", "doubt" if waiting.repairs else "good"),
            ("running", tabs["running"], "under repair", "run"),
            ("failed", tabs["failed"], "failed verification", "bad" if tabs["failed"] else "good"),
            ("held", tabs["held"], "held by a breaker", "many" if tabs["held"] else "good"),
            ("repaired", tabs["repaired"], "repaired today", "good"),
        ],
        **_oldest(request, waiting),
        "sick": [(verdict, verdicts.get(verdict, 0)) for verdict in ("HARDWARE", "AMBIGUOUS", "CORRELATED", "UNKNOWN")],
        "instances": sum(verdicts.values()),
        "state": state,
    }


def _oldest(request: HttpRequest, waiting: waits.Waits) -> dict[str, Any]:
    """The case and the repair that wait longest, the latter above: it holds a machine that is out of service."""
    see = access.seeing(request.user)
    cases = see(Case.objects.filter(state=State.WAITING)).select_related("instance", "pool").order_by("opened_at")
    asks = waits.repairs_shown(request.user, see, 1) if waiting.repairs else []
    return {"oldest": cases.first() if waiting.cases else None, "asks": asks[0] if asks else None}

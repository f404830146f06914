"""Home: what waits for this person, most urgent on top; the other tabs are the same table of other cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from healthboard import clock, exports, words
from healthboard.approve import waits
from healthboard.approve.context import frame
from healthboard.cases import listing, queries, standstill, urgency
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.exports import FORMATS, export
from healthboard.fleet import foreign
from healthboard.fleet.models import Gpu, Instance, Source
from healthboard.pages import PAGE_SIZE, live, page
from healthboard.people import access

#: waiting cases that are read to be put in order; beyond it the page says that there are more
MOST = 500


@page
def inbox(request: HttpRequest) -> HttpResponse:
    tab = request.GET.get("tab") or "waiting"
    tab = tab if tab in queries.TABS else "waiting"
    if (kind := request.GET.get("format")) in FORMATS:
        rows = exports.first(queries.tab(seen(request), tab).prefetch_related(listing.WITH_ANSWERS))
        return export(f"cases-{tab}", listing.COLUMNS, map(listing.as_dict, rows), kind, access.seeing(request.user))
    waiting = frame(request).waits
    counts = queries.tab_counts(seen(request))
    counts["waiting"] += waiting.repairs + waiting.requests
    return live(request, "inbox.html", queries.tab_version(counts, tab), lambda: context(request, tab, counts))


def seen(request: HttpRequest) -> QuerySet[Case]:
    return access.within(request.user, Case.objects.all())


def context(request: HttpRequest, tab: str, counts: dict[str, int]) -> dict[str, Any]:
    see = access.seeing(request.user)
    cases = queries.tab(see(Case.objects.all()), tab)[: MOST if tab == "waiting" else PAGE_SIZE]
    cases = foreign.rows(see, cases, "title", "why", "why_waiting", "mode_why")
    repairs = queries.latest_repairs(cases) if tab in ("running", "failed", "repaired", "itself") else {}
    waiting = tab == "waiting"
    standing, worse = (standstill.of_cases(see, cases), urgency.worsening(cases)) if waiting else ({}, {})
    asked = access.asking(request.user, "decide")
    rows = []
    for case in cases:
        why_not = asked(account=case.account, region=case.region, pool=case.pool.name if case.pool else "")
        rows.append(
            queries.Row(
                case, why_not, *queries.impact(case), repair=repairs.get(case.pk),
                standing=standing.get(case.pk), worse=worse.get(case.pk, ""),
            )
        )  # fmt: skip
    if waiting:
        now = clock.now()
        rows.sort(key=lambda row: urgency.key(row, now))
        rows = [replace(row, reasons=tuple(urgency.reasons(row, now))) for row in rows[:PAGE_SIZE]] + rows[PAGE_SIZE:]
    mine, beside = waits.mine(rows), _beside(request, see) if waiting else {}
    asks, requests = beside.get("asks", []), beside.get("requests", [])
    parts = ((mine, "case"), (waits.mine(asks), "repair"), (waits.mine(requests), "request"))
    for_me = sum(number for number, _ in parts)
    return {
        **beside,
        "for_me": for_me,
        "heading": words.listing([words.count(number, noun) for number, noun in parts if number]),
        "tab": tab,
        "tabs": [(name, title, counts[name]) for name, (title, _) in queries.TABS.items()],
        "rows": rows[:PAGE_SIZE],
        "more": counts[tab] - len(rows[:PAGE_SIZE]) - beside.get("counted", 0),
        "others": len(rows) - mine,
        "title": queries.TABS[tab][0],
        "empty": queries.TABS[tab][1],
        "bulk": tab == "waiting" and any(_like(row) for row in rows[:PAGE_SIZE]),
        "calm": _calm() if not rows and not asks and not requests else {},
    }


def _beside(request: HttpRequest, see: foreign.See) -> dict[str, Any]:
    """What waits beside cases: repairs that ask, and what wants a second person. Read only where there is some."""
    found = frame(request).waits
    asks = waits.repairs_shown(request.user, see, PAGE_SIZE) if found.repairs else []
    requests = waits.requests_shown(request.user, see) if found.requests else []
    return {
        "asks": asks,
        "asks_more": found.repairs - len(asks),
        "requests": requests,
        "requests_more": found.requests - len(requests),
        "counted": found.repairs + found.requests,
    }


def _like(row: queries.Row) -> bool:
    return row.why_not is None and row.case.state == State.WAITING and row.case.instance_id is not None


def _calm() -> dict[str, Any]:
    """What an empty list should still tell: how much is watched, and when it was last looked at."""
    return {
        "instances": Instance.objects.filter(gone_at=None).count(),
        "gpus": Gpu.objects.filter(instance__gone_at=None, instance__isnull=False).count(),
        "looked": Source.objects.order_by("-succeeded_at").values_list("succeeded_at", flat=True).first(),
    }

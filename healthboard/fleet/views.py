"""The fleet as a table and as a map, with the same filters; the same rows as CSV and JSON; saved views of both."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from healthboard import pages
from healthboard.exports import FORMATS, export, first
from healthboard.fleet import columns, drawing, queries
from healthboard.fleet.cells import cells, head
from healthboard.fleet.models import Instance
from healthboard.people import access, saved
from healthboard.people.models import SavedView
from healthboard.people.web import actor_of
from healthboard.words import VERDICTS

#: page that keeps views -> the parameters that a view of it may hold
KEPT = {"fleet": (*queries.PARAMS, "sort", "col"), "fleet_map": (*queries.PARAMS, "group")}


def _params(request: HttpRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").replace("\0", "").strip() for name in queries.PARAMS}


def _seen(request: HttpRequest) -> QuerySet[Instance]:
    return access.within(request.user, Instance.objects.all())


@pages.page
def fleet(request: HttpRequest) -> HttpResponse:
    views = saved.of(request.user, "fleet")
    if answer := _default_view(request, "fleet", views):
        return answer
    seen, params = _seen(request), _params(request)
    sort = request.GET.get("sort") or "health"
    sort = sort if sort.lstrip("-") in queries.SORTS else "health"
    if (kind := request.GET.get("format")) in FORMATS:
        rows = first(queries.in_order(queries.shown(queries.instances(seen, params)), sort, None))
        return export("fleet", queries.COLUMNS, map(queries.as_dict, rows), kind, access.seeing(request.user))
    after = pages.unpack(request.GET.get("after", ""), 2)
    mark = [queries.fleet_version(), request.GET.urlencode(), _views_mark(views)]
    return pages.live(
        request, "fleet.html", pages.version(mark),
        lambda: {
            **context(seen, params, sort, after, columns.chosen(request.GET.getlist("col"))),
            **_around(request, seen, params, "fleet", views),
        },
    )  # fmt: skip


def context(
    seen: QuerySet[Instance], params: dict[str, str], sort: str, after: list[Any] | None, shown: list[columns.Column]
) -> dict[str, Any]:
    rows = queries.first(queries.instances(seen, params), sort, after, pages.PAGE_SIZE + 1)
    more = len(rows) > pages.PAGE_SIZE
    rows = rows[: pages.PAGE_SIZE]
    for row in rows:
        row.stage = queries.stage(row.case_state, row.repair_state, row.gone_at)
        row.told_at, row.told_by = queries.oldest_word(row)
        row.cells = cells(row, shown)
        row.head = head(row)
    counts = queries.health_counts(seen, params)
    return {
        "rows": rows,
        "next": pages.pack([rows[-1].sort_key, rows[-1].pk]) if more else "",
        "paged": after is not None,
        "sort": sort,
        "counts": counts,
        "total": sum(n for _, n in counts),
        "matching": dict(counts).get(params["health"], 0) if params["health"] else sum(n for _, n in counts),
    }


@pages.page
def fleet_map(request: HttpRequest) -> HttpResponse:
    views = saved.of(request.user, "fleet_map")
    if answer := _default_view(request, "fleet_map", views):
        return answer
    seen, params = _seen(request), _params(request)
    group = request.GET.get("group", "")
    group = group if group in drawing.GROUPS else "zone"
    drawn = drawing.drawn(seen, access.scope(request.user), params, group)
    mark = [drawn.version, request.GET.urlencode(), _views_mark(views)]
    return pages.live(
        request, "map.html", pages.version(mark),
        lambda: {**_map(drawn, group), **_around(request, seen, params, "fleet_map", views)},
    )  # fmt: skip


def _map(drawn: drawing.Drawn, group: str) -> dict[str, Any]:
    return {
        "map": drawn,
        "group": group,
        "groups": list(drawing.GROUPS),
        "counts": drawn.counts,
        "total": sum(n for _, n in drawn.counts),
        "matching": drawn.cells,
    }


def _around(
    request: HttpRequest, seen: QuerySet[Instance], params: dict[str, str], page: str, views: list[SavedView]
) -> dict[str, Any]:
    """What stands around both: filters with their choices, columns, saved views."""
    shown = columns.chosen(request.GET.getlist("col"))
    now = saved.clean(request.GET.urlencode(), KEPT[page])
    return {
        "params": params,
        "filtered": any(params.values()),
        "choices": queries.choices(seen),
        "stages": queries.STAGES,
        "verdicts": list(VERDICTS),
        "columns": columns.COLUMNS,
        "shown_columns": shown,
        "show": {column.name for column in shown},
        "cols": request.GET.getlist("col"),
        "here": page,
        "views": views,
        "view": next((view for view in views if view.query == now), None) if now else None,
        "own_default": next((view for view in views if view.own_default and view.user_id == request.user.pk), None),
        "query_now": now,
        "carried": [(name, v) for name in KEPT[page] if name != "col" for v in request.GET.getlist(name) if v],
        "may_share": access.somewhere(request.user, "decide"),
    }


# --- saved views ---


def _default_view(request: HttpRequest, page: str, views: list[SavedView]) -> HttpResponse | None:
    """To the default view of whoever asks for the bare page; ``?view=none`` is the page without one."""
    if request.GET or request.headers.get("HX-Request"):
        return None
    found = saved.default(views, request.user)
    return HttpResponseRedirect(f"{reverse(page)}?{found.query}") if found and found.query else None


def _views_mark(views: list[SavedView]) -> list[Any]:
    return [(view.pk, view.saved_at) for view in views]


@pages.page
@require_POST
def save_view(request: HttpRequest) -> HttpResponse:
    page = request.POST.get("page", "")
    page = page if page in KEPT else "fleet"
    query = saved.clean(request.POST.get("query", ""), KEPT[page])
    given = request.POST.get("share", "")
    row = saved.save(
        actor=actor_of(request), page=page, name=request.POST.get("name", ""), query=query,
        shared=given in ("shared", "default"), default=given == "default", own_default=given == "mine",
        pool=request.POST.get("pool", "").replace("\0", "")[:255],
    )  # fmt: skip
    messages.success(request, f"View {row.name} saved.")
    return HttpResponseRedirect(f"{reverse(page)}?{query or 'view=none'}", status=303)


@pages.page
@require_POST
def remove_view(request: HttpRequest, pk: int) -> HttpResponse:
    row: SavedView = saved.remove(pk, actor=actor_of(request))
    messages.success(request, f"View {row.name} removed.")
    page = row.page if row.page in KEPT else "fleet"
    return HttpResponseRedirect(f"{reverse(page)}?view=none", status=303)

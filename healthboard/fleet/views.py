"""The fleet as a table; the same rows as CSV and JSON."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from healthboard import pages
from healthboard.exports import FORMATS, export
from healthboard.fleet import queries
from healthboard.fleet.models import Instance
from healthboard.people import access
from healthboard.words import VERDICTS

#: rows of an export; a fleet beyond it is exported in parts, by filters
MOST = 20_000
COLUMNS = (
    ("instance", "Instance"),
    ("health", "Health"),
    ("", "Stage"),
    ("pool", "Pool"),
    ("zone", "Zone"),
    ("type", "Type"),
    ("tasks", "Tasks"),
    ("since", "Since"),
)


@pages.page
def fleet(request: HttpRequest) -> HttpResponse:
    seen = access.within(request.user, Instance.objects.all())
    params = {
        name: request.GET.get(name, "").replace("\0", "").strip() for name in (*queries.FILTERS, "q", "stage", "gone")
    }
    sort = request.GET.get("sort") or "health"
    sort = sort if sort.lstrip("-") in queries.SORTS else "health"
    if (kind := request.GET.get("format")) in FORMATS:
        rows = queries.in_order(queries.shown(queries.instances(seen, params)), sort, None)[:MOST]
        return export("fleet", (queries.as_dict(row) for row in rows), kind)
    after = pages.unpack(request.GET.get("after", ""), 2)
    mark = [queries.fleet_version(), request.GET.urlencode()]
    return pages.live(request, "fleet.html", pages.version(mark), lambda: context(seen, params, sort, after))


def context(seen: QuerySet[Instance], params: dict[str, str], sort: str, after: list[Any] | None) -> dict[str, Any]:
    rows = list(queries.in_order(queries.shown(queries.instances(seen, params)), sort, after)[: pages.PAGE_SIZE + 1])
    more = len(rows) > pages.PAGE_SIZE
    rows = rows[: pages.PAGE_SIZE]
    for row in rows:
        row.stage = queries.stage(row.case_state, row.repair_state, row.gone_at)
        row.told_at, row.told_by = queries.oldest_word(row)
    counts = queries.health_counts(seen, params)
    return {
        "rows": rows,
        "next": pages.pack([rows[-1].sort_key, rows[-1].pk]) if more else "",
        "paged": after is not None,
        "params": params,
        "filtered": any(params.values()),
        "sort": sort,
        "columns": COLUMNS,
        "counts": counts,
        "total": sum(n for _, n in counts),
        "matching": dict(counts).get(params["health"], 0) if params["health"] else sum(n for _, n in counts),
        "choices": queries.choices(seen),
        "stages": queries.STAGES,
        "verdicts": list(VERDICTS),
    }

"""Jobs: those that stand still first, with why and since when; those on a sick machine; those that run; those that ended."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from healthboard import clock
from healthboard.cases import jobs as queries
from healthboard.exports import FORMATS, export
from healthboard.pages import PAGE_SIZE, live, pack, page, unpack, version
from healthboard.people import access


@page
def jobs(request: HttpRequest) -> HttpResponse:
    tab = request.GET.get("tab") or "still"
    tab = tab if tab in queries.TABS else "still"
    text = request.GET.get("q", "").replace("\0", "").strip().lower()
    if (kind := request.GET.get("format")) in FORMATS:
        rows = [job for job in _every(request, text) if job.state == tab]
        return export(f"jobs-{tab}", queries.COLUMNS, map(queries.as_dict, rows), kind, access.seeing(request.user))
    # a stop may come to count, or no longer, as time goes by: looked at anew each minute
    minute = int(clock.now().timestamp() // 60)
    mark = version(queries.version(), access.scope(request.user), request.GET.urlencode(), minute)
    return live(request, "jobs.html", mark, lambda: context(request, tab, text))


def _every(request: HttpRequest, text: str) -> list[queries.Job]:
    """All jobs, or those with `text` in their name, their family or the id of one of their instances."""
    every = queries.read(request.user)
    if not text:
        return every
    here = queries.on(request.user, text)
    return [
        job
        for job in every
        if job.name in here or any(text in part.lower() for part in (job.name, job.family, *job.nodes))
    ]


def context(request: HttpRequest, tab: str, text: str) -> dict[str, Any]:
    every = _every(request, text)
    rows = [job for job in every if job.state == tab]
    at = unpack(request.GET.get("after", ""), 1)
    start = next((n for n, job in enumerate(rows, 1) if at and job.key == at[0]), 0)
    shown = rows[start : start + PAGE_SIZE]
    return {
        "tab": tab,
        "tabs": [
            (name, title, sum(1 for job in every if job.state == name)) for name, (title, _) in queries.TABS.items()
        ],
        "rows": shown,
        "next": pack([shown[-1].key]) if start + len(shown) < len(rows) else "",
        "paged": start > 0,
        "matching": len(rows),
        "text": text,
        "title": queries.TABS[tab][0],
        "empty": queries.TABS[tab][1],
        "idle": queries.idle(every),
    }

"""The audit list: who did what, when, by which way. Read-only."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from healthboard import pages
from healthboard.audit import queries
from healthboard.exports import FORMATS, export

MOST = 50_000


@pages.page
def audit(request: HttpRequest) -> HttpResponse:
    params = {name: request.GET.get(name, "").replace("\0", "").strip() for name in queries.FILTERS}
    found = queries.rows(params, request.user)
    if (kind := request.GET.get("format")) in FORMATS:
        return export("audit", (queries.as_dict(row) for row in found[:MOST]), kind)
    after = pages.unpack(request.GET.get("after", ""), 1)
    if after is not None:
        found = found.filter(pk__lt=after[0])
    rows = list(found[: pages.PAGE_SIZE + 1])
    more, rows = len(rows) > pages.PAGE_SIZE, rows[: pages.PAGE_SIZE]
    context = {
        "rows": rows,
        "next": pages.pack([rows[-1].pk]) if more else "",
        "paged": after is not None,
        "params": params,
        "filtered": any(params.values()),
        "verbs": queries.verbs(),
    }
    if request.headers.get("HX-Request"):
        answer = render(request, "audit.html#live", {**context, "fragment": True})
        answer["HX-Push-Url"] = f"{request.path}{pages.query(request)}"
        return answer
    return render(request, "audit.html", context)

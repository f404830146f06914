"""The audit list: who did what, when, by which way. Read-only; as CSV or JSON it is sent while it is read."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from healthboard import pages, spans
from healthboard.audit import queries
from healthboard.cases.models import Case
from healthboard.exports import FORMATS, stream
from healthboard.fleet import foreign
from healthboard.people import access
from healthboard.policies.visible import visible


@pages.page
def audit(request: HttpRequest) -> HttpResponseBase:
    params = {name: request.GET.get(name, "").replace("\0", "").strip()[:200] for name in queries.FILTERS}
    see = access.seeing(request.user)
    policies = visible(see).values_list("pk", flat=True)
    found = queries.rows(params, request.user, see(Case.objects.all()), policies)
    if (kind := request.GET.get("format")) in FORMATS:
        return stream("audit", queries.COLUMNS, map(queries.as_dict, queries.each(found)), kind, see)
    after = pages.unpack(request.GET.get("after", ""), 1)
    if after is not None and isinstance(after[0], int):
        found = found.filter(pk__lt=after[0])
    rows = list(found[: pages.PAGE_SIZE + 1])
    more, rows = len(rows) > pages.PAGE_SIZE, rows[: pages.PAGE_SIZE]
    context = {
        "rows": foreign.rows(see, rows, "summary"),
        "next": pages.pack([rows[-1].pk]) if more else "",
        "paged": after is not None,
        "params": params,
        "since": spans.minute(params["since"]),
        "until": spans.minute(params["until"], last=True),
        "filtered": any(params.values()),
        "verbs": queries.verbs(),
    }
    if request.headers.get("HX-Request"):
        answer = render(request, "audit.html#live", {**context, "fragment": True})
        answer["HX-Push-Url"] = f"{request.path}{pages.query(request)}"
        return answer
    return render(request, "audit.html", context)

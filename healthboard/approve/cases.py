"""Every case, open and closed: filters in the address, pages by key, the same rows as CSV and JSON."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from healthboard import words
from healthboard.cases import listing, queries
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import State
from healthboard.exports import FORMATS, export, first
from healthboard.fleet import foreign
from healthboard.pages import PAGE_SIZE, live, pack, page, unpack
from healthboard.people import access


@page
def cases(request: HttpRequest) -> HttpResponse:
    params = {name: request.GET.get(name, "").replace("\0", "").strip()[:1000] for name in listing.PARAMS}
    see = access.seeing(request.user)
    seen = see(Case.objects.all())
    if (kind := request.GET.get("format")) in FORMATS:
        rows = first(listing.before(listing.cases(seen, params), None))
        return export("cases", listing.COLUMNS, map(listing.as_dict, rows), kind, see)
    after = unpack(request.GET.get("after", ""), 1)
    mark = [request.GET.urlencode(), queries.list_version(seen)]
    return live(request, "cases.html", mark, lambda: _context(see, seen, params, after))


def _context(see: foreign.See, seen: QuerySet[Case], params: dict[str, str], after: list[Any] | None) -> dict[str, Any]:
    rows = list(listing.before(listing.cases(seen, params), after)[: PAGE_SIZE + 1])
    more, rows = len(rows) > PAGE_SIZE, rows[:PAGE_SIZE]
    for row in rows:
        row.answer = listing.last_answer(row)
    foreign.rows(see, [row.answer for row in rows if row.answer], "reason", "outcome_why")
    tab = params["state"] if params["state"] in listing.TABS else "open"
    tabs = listing.counts(seen, params)
    return {
        "rows": foreign.rows(see, rows, "title", "why", "why_waiting", "mode_why", "resolution_note"),
        "next": pack([rows[-1].pk]) if more else "",
        "paged": after is not None,
        "params": params,
        "filtered": any(value for name, value in params.items() if name != "state"),
        "tab": tab,
        "tabs": tabs,
        "matching": next(count for name, _, count in tabs if name == tab),
        "open_state": params["state"] if params["state"] in list(State) else "",
        "ends": [(name, words.RESOLUTIONS.get(name, "Repaired or replaced")) for name in listing.ENDS],
        "answered": [(str(kind), kind.label.capitalize()) for kind in Decision.Kind],
        "but": int(params["but"]) if params["but"].isdecimal() else None,
        "verdicts": list(words.VERDICTS),
        **{f"{name}s": values for name, values in listing.choices(seen).items()},
    }

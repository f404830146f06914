"""The report of one case, to be printed or kept as a file: one page of its own without anything that moves."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from healthboard import clock
from healthboard.approve.case import find
from healthboard.cases import report as reports
from healthboard.fleet import foreign
from healthboard.pages import page
from healthboard.people import access
from healthboard.repairs.progress import progress


@page
def report(request: HttpRequest, case_id: int) -> HttpResponse:
    see = access.seeing(request.user)
    told = reports.build(find(request, case_id), see)
    if request.GET.get("format") == "json":
        answer = JsonResponse(foreign.plain(see, reports.plain(told)))
        answer["Content-Disposition"] = f'attachment; filename="case-{case_id}.json"'
        return answer
    context = {
        "report": told, "case": told.case, "times": told.times, "instance": told.case.instance, "made_at": clock.now(),
        # what was done may be another action than the one that was proposed
        "did": told.repairs[-1].action if told.repairs else told.case.action,
        "repairs": [{"repair": repair, "progress": foreign.plain(see, progress(repair))} for repair in told.repairs],
    }  # fmt: skip
    return render(request, "report.html", context)

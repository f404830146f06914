"""Raw evidence as JSON: what an instance's reading rests on now, and what a case's readings rested on when they were kept.

To whoever sees a part of the fleet, instances of the rest are counted: the hash is of what was kept."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from healthboard.approve.by_hand import find as find_instance
from healthboard.cases.evidence import assessment_json, evidence_hash
from healthboard.fleet import foreign
from healthboard.fleet.evidence import freeze
from healthboard.pages import page
from healthboard.people import access
from healthboard.policies.reading import reread

#: kept readings of a case that are given, the newest first
MOST = 20


@page
def of_instance(request: HttpRequest, pk: int) -> HttpResponse:
    """The very input of the reading, and what it gives."""
    seen, see = reread(find_instance(request, pk)), access.seeing(request.user)
    inputs = freeze(seen.events, seen.readings, seen.context, thresholds=seen.thresholds, now=seen.at)
    told = {"hash": evidence_hash(seen.assessment), "at": seen.at, "inputs": inputs}
    return JsonResponse(foreign.plain(see, {**told, "assessment": assessment_json(seen.assessment)}))


@page
def of_case(request: HttpRequest, case_id: int) -> HttpResponse:
    """Each kept reading with its hash: what the decisions rest on, and `replay` reads."""
    from healthboard.approve.case import find

    rows = find(request, case_id).evidence.order_by("-pk")[:MOST]
    items = [
        {"hash": row.hash, "at": row.at, "verdict": row.verdict, "inputs": row.inputs, "assessment": row.assessment,
         "answer": row.answer}
        for row in rows
    ]  # fmt: skip
    return JsonResponse({"items": foreign.plain(access.seeing(request.user), items)})

"""The record through the API: decisions, audit rows, the report of a case, and statistics."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from healthboard import clock, spans
from healthboard.api import csv_out, more, schemas, views
from healthboard.api.auth import Throttle, may_view
from healthboard.api.errors import READ
from healthboard.api.lists import CSV, DETAIL, After, Id, Limit, OfCase, OneInstance, Word, page
from healthboard.audit import queries as audited
from healthboard.cases import queries as cases
from healthboard.cases import report, statistics
from healthboard.cases.models import Case, Decision
from healthboard.fleet import foreign
from healthboard.people import access
from healthboard.policies.visible import visible
from healthboard.refusals import Invalid, NotFound

router = Router(tags=["record"], throttle=[Throttle()])

Kind = Annotated[schemas.Kind, Query(None)]
Moment = Annotated[
    Annotated[str, Field(max_length=19, pattern=r"^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?$")],
    Query(None, description="a day or a time, UTC, included: 2026-03-01 or 2026-03-01T12:30"),
]
By = Annotated[schemas.By, Query(None)]


@router.get("/decisions", response={200: more.DecisionList, **READ}, operation_id="list_decisions", openapi_extra=CSV)
def decisions(
    request: HttpRequest, case: OfCase = None, kind: Kind = None, actor: Word = None, after: After = None,
    limit: Limit = 500, format: schemas.Format = schemas.Format.JSON,
):  # fmt: skip
    """Decisions, newest first; `actor` is a whole name, `healthboard:policy` what was decided by itself."""
    may_view(request)
    rows = access.within(request.auth, Decision.objects.all(), prefix="case__")
    for name, value in (("case", case), ("kind", kind), ("actor", actor)):
        if value:
            rows = rows.filter(**{name: value})
    return page(request, rows, views.decision, "decisions", after, limit, format, schemas.DecisionItem)


@router.get("/audit", response={200: more.AuditList, **READ}, operation_id="list_audit", openapi_extra=CSV)
def audit(
    request: HttpRequest, who: Word = None, verb: Word = None, instance: OneInstance = None, case: OfCase = None,
    repair: OfCase = None, pool: Word = None, since: Moment = None, until: Moment = None, after: After = None,
    limit: Limit = 500, format: schemas.Format = schemas.Format.JSON,
):  # fmt: skip
    """Audit rows, newest first, by the filters of the audit page: `who` is a part of a name, `verb` how it begins."""
    may_view(request)
    told = {"who": who, "verb": verb, "instance": instance, "case": case, "repair": repair, "pool": pool,
            "since": _moment("since", since), "until": _moment("until", until)}  # fmt: skip
    params = {name: str(value) for name, value in told.items() if value is not None}
    see = access.seeing(request.auth)
    policies = visible(see).values_list("pk", flat=True)
    rows = audited.rows(params, request.auth, see(Case.objects.all()), policies)
    return page(request, rows, audited.as_dict, "audit", after, limit, format, more.AuditItem)


def _moment(name: str, text: str | None) -> str | None:
    if text and spans.begin(text) is None:
        raise Invalid(f"{name}: there is no such day or time: {text}")
    return text


@router.get("/cases/{case_id}/report", response={200: dict[str, Any], **DETAIL}, operation_id="get_report")
def case_report(request: HttpRequest, case_id: Id):
    """Everything about one case on one sheet, with the head of the audit chain to verify it by."""
    may_view(request)
    see = access.seeing(request.auth)
    found = cases.get(case_id) if see(Case.objects.filter(pk=case_id)).exists() else None
    if found is None:
        raise NotFound(f"There is no case {case_id}.")
    return foreign.plain(see, report.plain(report.build(found, see)))


@router.get("/statistics", response={200: more.Statistics, **READ}, operation_id="get_statistics", openapi_extra=CSV)
def figures(
    request: HttpRequest, pool: Word = None, since: Moment = None, until: Moment = None, by: By = None,
    format: schemas.Format = schemas.Format.JSON,
) -> dict[str, Any] | HttpResponse:  # fmt: skip
    """Figures over time, of the last thirty days if nothing is asked for; at most 400 days. CSV gives the days or weeks."""
    may_view(request)
    _moment("since", since), _moment("until", until)
    time = statistics.span(spans.begin(since or ""), spans.end(until or ""), by or "", clock.now())
    found = statistics.figures(access.seeing(request.auth), *time, pool or "")
    if format == schemas.Format.CSV:
        return csv_out.answer("statistics", statistics.COLUMNS, map(statistics.row, found.buckets))
    return statistics.plain(found)

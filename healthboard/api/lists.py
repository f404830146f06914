"""Reading: cases, repairs and instances, newest first, by keyset, in what the caller may see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import Field

from healthboard.api import csv_out, schemas, views
from healthboard.api.auth import Throttle, may_view
from healthboard.api.errors import READ, responses
from healthboard.cases import jobs as job_rows
from healthboard.fleet import foreign
from healthboard.people import access
from healthboard.refusals import NotFound
from healthboard.repairs import agreement

router = Router(tags=["lists"], throttle=[Throttle()])

#: a parameter that is left out is None, but nobody can send a null: `Query(None)` keeps the null out of OpenAPI
OneInstance = Annotated[schemas.InstanceId, Query(None)]
CaseState = Annotated[schemas.CaseState, Query(None)]
RepairState = Annotated[schemas.RepairState, Query(None)]
JobState = Annotated[schemas.JobState, Query(None)]
Word = Annotated[schemas.Name, Query(None)]
After = Annotated[int, Query(None, ge=1, le=schemas.BIG, description="`next` of the page before")]
OfCase = Annotated[int, Query(None, ge=1, le=schemas.BIG)]
Limit = Annotated[int, Query(500, ge=1, le=1000)]
Id = Annotated[int, Field(ge=1, le=schemas.BIG)]
CSV = {"responses": {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}}
DETAIL = {**READ, **responses(404)}


def page(
    request: HttpRequest, rows: QuerySet, show: Callable[[Any], dict[str, Any]], name: str, after: int | None, limit: int,
    format: schemas.Format, schema: Any,
) -> Any:  # fmt: skip
    """One page: rows with a smaller id than `after`. CSV takes the same page."""
    if after is not None:
        rows = rows.filter(pk__lt=after)
    found = list(rows.order_by("-pk")[: limit + 1])
    items = views.for_person(access.seeing(request.auth), [show(row) for row in found[:limit]])
    if format == schemas.Format.CSV:
        return csv_out.answer(name, list(schema.model_fields), items)
    # written as it is: to validate and copy each row once more takes longer than to read it; a test compares the keys
    body = {"items": items, "next": found[limit - 1].pk if len(found) > limit else None}
    return HttpResponse(json.dumps(body, cls=DjangoJSONEncoder), content_type="application/json; charset=utf-8")


def one(request: HttpRequest, item: dict[str, Any]) -> dict[str, Any]:
    return views.for_person(access.seeing(request.auth), [item])[0]


@router.get("/cases", response={200: schemas.CaseList, **READ}, operation_id="list_cases", openapi_extra=CSV)
def cases(
    request: HttpRequest,
    instance: OneInstance = None,
    state: CaseState = None,
    after: After = None,
    limit: Limit = 500,
    format: schemas.Format = schemas.Format.JSON,
):
    """Cases, newest first; `instance` finds group cases of which it is a member too."""
    may_view(request)
    see = access.seeing(request.auth)
    rows = see(views.listed_cases())
    if instance and foreign.unseen(see, {instance}):
        rows = rows.none()  # that it is a member of something is told to nobody who may not see it
    elif instance:
        members = Q(members__instance__instance_id=instance)
        # what is part of a group without a case of its own is kept by its id
        named = Q(instance=None, named__contains=f'"{instance}"')
        rows = rows.annotate(named=Cast("victims", TextField()))
        rows = rows.filter(Q(instance__instance_id=instance) | members | named).distinct()
    if state:
        rows = rows.filter(state=state)
    return page(request, rows, views.case, "cases", after, limit, format, schemas.CaseItem)


@router.get("/cases/{case_id}", response={200: schemas.CaseDetail, **DETAIL}, operation_id="get_case")
def case(request: HttpRequest, case_id: Id):
    may_view(request)
    row = access.within(request.auth, views.cases()).filter(pk=case_id).first()
    if row is None:
        raise NotFound(f"There is no case {case_id}.")
    return one(request, views.case_detail(row))


@router.get("/repairs", response={200: schemas.RepairList, **READ}, operation_id="list_repairs", openapi_extra=CSV)
def repairs(
    request: HttpRequest,
    instance: OneInstance = None,
    state: RepairState = None,
    case: OfCase = None,
    after: After = None,
    limit: Limit = 500,
    format: schemas.Format = schemas.Format.JSON,
):
    """Repairs, newest first; `resolution` is the outcome, empty while it is open."""
    may_view(request)
    rows = access.within(request.auth, views.listed_repairs(), prefix="instance__")
    if instance:
        rows = rows.filter(instance__instance_id=instance)
    if state:
        rows = rows.filter(state=state)
    if case:
        rows = rows.filter(decision__case=case)
    return page(request, rows, views.repair, "repairs", after, limit, format, schemas.RepairItem)


@router.get("/repairs/{repair_id}", response={200: schemas.RepairDetail, **DETAIL}, operation_id="get_repair")
def repair(request: HttpRequest, repair_id: Id):
    may_view(request)
    row = access.within(request.auth, views.repairs(), prefix="instance__").filter(pk=repair_id).first()
    if row is None:
        raise NotFound(f"There is no repair {repair_id}.")
    item = {**views.repair_detail(row), "choices": agreement.choices(row, request.auth)}
    return one(request, item)


@router.get(
    "/instances", response={200: schemas.InstanceList, **READ}, operation_id="list_instances", openapi_extra=CSV
)
def instances(
    request: HttpRequest,
    instance: OneInstance = None,
    pool: Word = None,
    verdict: Word = None,
    gone: Annotated[bool, Query(False, description="those that are gone, too")] = False,
    after: After = None,
    limit: Limit = 500,
    format: schemas.Format = schemas.Format.JSON,
):
    """Instances, the one seen last first, with their open case and repair."""
    may_view(request)
    rows = access.within(request.auth, views.listed_instances())
    if not gone:
        rows = rows.filter(gone_at=None)
    if instance:
        rows = rows.filter(instance_id=instance)
    if pool:
        rows = rows.filter(pool__name=pool)
    if verdict:
        rows = rows.filter(verdict=verdict)
    return page(request, rows, views.instance, "instances", after, limit, format, schemas.InstanceItem)


@router.get("/jobs", response={200: schemas.JobList, **READ}, operation_id="list_jobs", openapi_extra=CSV)
def jobs(
    request: HttpRequest,
    state: JobState = None,
    limit: Limit = 500,
    format: schemas.Format = schemas.Format.JSON,
):
    """Jobs, those that stand still first, then the larger; the rows of the page of jobs."""
    may_view(request)
    rows = [job for job in job_rows.read(request.auth) if state in (None, "", job.state)][:limit]
    items = [{**job_rows.as_dict(job), "victims": job.victims} for job in rows]
    items = views.for_person(access.seeing(request.auth), items)
    if format == schemas.Format.CSV:
        return csv_out.answer("jobs", list(schemas.JobItem.model_fields), items)
    return {"items": items}


@router.get("/instances/{pk}", response={200: schemas.InstanceDetail, **DETAIL}, operation_id="get_instance")
def instance(request: HttpRequest, pk: Id):
    """One instance, with everything that stands against the next step."""
    may_view(request)
    row = access.within(request.auth, views.instances()).filter(pk=pk).first()
    if row is None:
        raise NotFound(f"There is no instance {pk}.")
    return one(request, views.instance_detail(row))


@router.get(
    "/condemned", response={200: schemas.CondemnedList, **READ}, operation_id="list_condemned", openapi_extra=CSV
)
def condemned(
    request: HttpRequest, after: After = None, limit: Limit = 500, format: schemas.Format = schemas.Format.JSON
):
    """GPUs that were given back as broken and must not serve again."""
    may_view(request)
    rows = access.within(request.auth, views.condemned(), pool="instance__pool__name")
    return page(request, rows, views.gpu, "condemned", after, limit, format, schemas.CondemnedItem)

"""Deciding: the same `decide` as the pages, under the caller's name."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from healthboard.api import schemas, views
from healthboard.api.auth import Throttle, actor_of, may_view
from healthboard.api.errors import WRITE
from healthboard.api.lists import Id
from healthboard.cases.answers import decide as answer
from healthboard.cases.models import Case
from healthboard.fleet import condemned
from healthboard.fleet.models import Gpu
from healthboard.people import access
from healthboard.refusals import NotFound

#: for a snooze that names no time
SNOOZE_S = 3600

router = Router(tags=["decisions"], throttle=[Throttle()])


@router.post("/cases/{case_id}/decisions", response={200: schemas.DecisionItem, **WRITE}, operation_id="decide_case")
def decide(request: HttpRequest, case_id: Id, payload: schemas.DecisionIn) -> Any:
    """Approve, override, dismiss or snooze a case. 409 where it was decided, is closed, or changed since it was read."""
    may_view(request)
    if not access.within(request.auth, Case.objects.filter(pk=case_id)).exists():
        raise NotFound(f"There is no case {case_id}.")
    made = answer(
        case_id,
        actor=actor_of(request),
        kind=payload.decision,
        action=payload.action,
        reason=payload.reason,
        plan_version=payload.plan_version,
        evidence_hash=payload.evidence_hash,
        snooze_s=payload.snooze_s or (SNOOZE_S if payload.decision == "snooze" else None),
        allow=tuple(payload.allow),
    )
    return views.for_person(access.seeing(request.auth), [views.decision(made)])[0]


@router.post(
    "/condemned/{gpu_id}/lift", response={200: schemas.CondemnedItem, **WRITE}, operation_id="lift_condemnation"
)
def lift(request: HttpRequest, gpu_id: Id, payload: schemas.LiftIn) -> Any:
    """Let condemned hardware serve again: an approver or admin, with the reason. 409 where it is not condemned."""
    may_view(request)
    if not access.within(request.auth, Gpu.objects.filter(pk=gpu_id), pool="instance__pool__name").exists():
        raise NotFound("There is no such GPU.")
    return views.gpu(condemned.lift(gpu_id, actor=actor_of(request), reason=payload.reason))

"""By hand through the API: drain, return, reboot, replace, diagnose, pause. The same plan, guards and record as the pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Path, Router

from healthboard import clock
from healthboard.api import more, schemas, views
from healthboard.api.auth import Throttle, actor_of, may_view
from healthboard.api.errors import READ, WRITE
from healthboard.api.lists import CSV, DETAIL, After, Id, Limit, page
from healthboard.cases import by_hand
from healthboard.fleet import foreign
from healthboard.fleet import queries as fleet
from healthboard.fleet.models import Instance
from healthboard.people import access
from healthboard.refusals import NotFound
from healthboard.repairs import brakes, queries
from healthboard.repairs.models import Pause

router = Router(tags=["by hand"], throttle=[Throttle()])


def _find(request: HttpRequest, pk: int) -> Instance:
    may_view(request)
    found = fleet.instance(access.within(request.auth, Instance.objects.all()), pk=pk)
    if found is None:
        raise NotFound(f"There is no instance {pk}.")
    return found


@router.get(
    "/instances/{pk}/actions/{action}",
    response={200: more.Offer, **DETAIL, 409: WRITE[409]},
    operation_id="offer_action",
)
def offer(request: HttpRequest, pk: Id, action: Annotated[more.Action, Path()]) -> Any:
    """The plan of one action on this instance, as it stands now. 404 where its owner's instances don't know it."""
    found = _find(request, pk)
    shown = by_hand.offer(found, action)
    button = next((b for b in by_hand.buttons(found, request.auth) if b["action"] == action), None)
    if button is None:
        raise NotFound(f"There is no action {action} for this instance.")
    item = {"action": action, "title": button["title"], "plan": shown.plan, "why_not": button["why_not"]}
    told = foreign.plain(access.seeing(request.auth), item)
    return {**told, "seen": shown.seen, "case": shown.case.pk if shown.case else None}


@router.post("/instances/{pk}/actions", response={200: schemas.DecisionItem, **WRITE}, operation_id="ask_action")
def ask(request: HttpRequest, pk: Id, payload: more.ActIn) -> Any:
    """Ask for the action that was offered as `seen`; it is decided as on the page: once, or when a second person has
    approved it (`repair` is null until then). 409 where the world changed, or something else is under way."""
    _find(request, pk)
    made = by_hand.ask(pk, actor=actor_of(request), action=payload.action, reason=payload.reason, seen=payload.seen)
    return foreign.plain(access.seeing(request.auth), views.decision(made))


def _pauses(request: HttpRequest) -> QuerySet[Pause]:
    """Those in force that the person may know of."""
    return queries.pauses(access.seeing(request.auth)).filter(ended_at=None, until__gt=clock.now())


def _pause(row: Pause) -> dict[str, Any]:
    names = ("scope_kind", "scope", "reason", "set_by", "set_at", "until", "ended_at")
    return {"id": row.pk, **{name: getattr(row, name) for name in names}}


@router.get("/pauses", response={200: more.PauseList, **READ}, operation_id="list_pauses", openapi_extra=CSV)
def pauses(request: HttpRequest, after: After = None, limit: Limit = 500, format: schemas.Format = schemas.Format.JSON):
    """Pauses in force, the newest first."""
    may_view(request)
    return page(request, _pauses(request), _pause, "pauses", after, limit, format, more.PauseItem)


@router.post("/instances/{pk}/pauses", response={200: more.PauseItem, **WRITE}, operation_id="pause_instance")
def pause(request: HttpRequest, pk: Id, payload: more.PauseIn) -> Any:
    """Nothing is changed about this instance until the pause ends, by itself or by a person."""
    found = _find(request, pk)
    row = brakes.pause(
        actor=actor_of(request), scope_kind="instance", scope=found.instance_id, account=found.account,
        region=found.region, pool=found.pool.name if found.pool else "", reason=payload.reason,
        until=clock.now() + timedelta(seconds=payload.length_s),
    )  # fmt: skip
    return _pause(row)


@router.post("/pauses/{pause_id}/end", response={200: more.PauseItem, **WRITE}, operation_id="end_pause")
def end_pause(request: HttpRequest, pause_id: Id) -> Any:
    may_view(request)
    if not _pauses(request).filter(pk=pause_id).exists():
        raise NotFound(f"There is no pause {pause_id} in force.")
    brakes.end_pause(pause_id, actor_of(request))
    return foreign.plain(access.seeing(request.auth), _pause(Pause.objects.get(pk=pause_id)))

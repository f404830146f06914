"""What takes two people, through the API: what was asked for, asking, confirming, refusing; answers to a repair that
asks. The same functions as the pages. Asking and confirming want a person's presence, which no token proves: with a
token they are read, refused and taken back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import ConfigDict, Field

from healthboard import clock
from healthboard.api import schemas, views
from healthboard.api.auth import Throttle, actor_of, may_view
from healthboard.api.errors import READ, WRITE
from healthboard.api.lists import CSV, DETAIL, After, Id, Limit, one, page
from healthboard.cases import answers, groups
from healthboard.cases import second as cases
from healthboard.cases.models import Case
from healthboard.people import access, second
from healthboard.people.models import Request
from healthboard.refusals import NotFound
from healthboard.repairs import lifecycle, queries
from healthboard.repairs import second as repairs
from healthboard.repairs.models import Breaker, Repair

router = Router(tags=["two people"], throttle=[Throttle()])

Reason = Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")]


class RequestItem(Schema):
    """Something that one person asked for and another one confirms; it ends by itself at `expires_at`."""

    id: int
    kind: Literal[tuple(second.KINDS)]
    state: Literal[tuple(Request.STATES)]
    subject: str = Field(description="what it is about: `breaker:5`, `case:3` or `repair:7`")
    what: str = Field(description="in words")
    reason: str
    account: str
    region: str
    pool: str
    asked_by: str
    asked_at: datetime
    expires_at: datetime
    why_not: str | None = Field(
        description="why the caller may not confirm it, in words; null where they may, or it is over"
    )
    answered_by: str
    answered_at: datetime | None
    answer: str


class RequestList(Schema):
    items: list[RequestItem]
    next: int | None = Field(description="pass it as `after` for the next page; null at the end")


class RequestIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Literal[tuple(second.KINDS)]
    id: Annotated[int, Field(ge=1, le=schemas.BIG, description="of the breaker, the group case or the repair")]
    reason: Reason = Field(description="the second person will want to know")


class RefuseIn(Schema):
    model_config = ConfigDict(extra="forbid", strict=True)
    reason: Reason = Field("", description="wanted, but of the one who asked and takes it back")


class AnswerIn(Schema):
    """`choice` is a key of the repair's `choices`; one that takes a second person is asked for as a request."""

    model_config = ConfigDict(extra="forbid", strict=True)
    choice: Annotated[str, Field(max_length=40, pattern=r"^[a-z_]+$")]
    reason: Reason


class Answered(Schema):
    repair: int
    more: int = Field(description="how many more people must choose the same before it is carried out")


class BreakerItem(Schema):
    id: int
    kind: str
    title: str
    scope_kind: str
    scope: str
    account: str
    region: str
    why: str
    opened_at: datetime
    case: int | None = Field(description="the group case that holds by it, with which it is released")


class BreakerList(Schema):
    items: list[BreakerItem]
    next: int | None = Field(description="pass it as `after` for the next page; null at the end")


@router.get("/breakers", response={200: BreakerList, **READ}, operation_id="list_breakers", openapi_extra=CSV)
def breakers(
    request: HttpRequest, after: After = None, limit: Limit = 500, format: schemas.Format = schemas.Format.JSON
):
    """Open breakers that may hold something in the caller's places, the newest first."""
    may_view(request)
    rows = queries.breakers(access.seeing(request.auth)).filter(released_at=None).select_related("account")
    holding = groups.holdings()

    def show(row: Breaker) -> dict[str, Any]:
        names = ("kind", "title", "scope_kind", "scope", "region", "why", "opened_at")
        by = holding.get(row.pk)
        return {
            "id": row.pk, **{name: getattr(row, name) for name in names},
            "account": row.account.account_id if row.account else "", "case": by.pk if by else None,
        }  # fmt: skip

    return page(request, rows, show, "breakers", after, limit, format, BreakerItem)


@router.get("/requests", response={200: RequestList, **READ}, operation_id="list_requests", openapi_extra=CSV)
def requests(
    request: HttpRequest, after: After = None, limit: Limit = 500, format: schemas.Format = schemas.Format.JSON
):
    """Everything that waits for a second person in the caller's places, the newest first; at most one of a kind for
    each repair, case and breaker."""
    may_view(request)
    seen = [row.pk for row in second.seen(request.auth, second.waiting())]
    rows = second.waiting().filter(pk__in=seen)
    return page(request, rows, lambda row: _item(request, row), "requests", after, limit, format, RequestItem)


@router.get("/requests/{request_id}", response={200: RequestItem, **DETAIL}, operation_id="get_request")
def get_request(request: HttpRequest, request_id: Id) -> Any:
    return one(request, _item(request, _find(request, request_id)))


@router.post("/requests", response={200: RequestItem, **WRITE}, operation_id="ask_request")
def ask_for(request: HttpRequest, payload: RequestIn) -> Any:
    """Ask for what takes two people: `release` of a breaker (with its group case, where one holds by it), `release_case`
    of a group case, `terminate_first` or `force_tasks` of a repair that asks for it, `over_budget` of one that waits for
    the budget. It is carried out once another person has confirmed it."""
    may_view(request)
    see, actor = access.seeing(request.auth), actor_of(request)
    told = {"actor": actor, "reason": payload.reason}
    match payload.kind:
        case "release":
            _there(queries.breakers(see), payload.id, "breaker")
            row = cases.ask_release_of(payload.id, **told)
        case "release_case":
            _there(see(Case.objects.all()), payload.id, "case")
            row = cases.ask_release(payload.id, **told)
        case kind:
            _there(see(Repair.objects.all(), prefix="instance__"), payload.id, "repair")
            asking = repairs.ask_over_budget if kind == "over_budget" else repairs.ask_answer
            row = asking(payload.id, **told, **({} if kind == "over_budget" else {"choice": kind}))
    return one(request, _item(request, row))


@router.post("/requests/{request_id}/confirm", response={200: RequestItem, **WRITE}, operation_id="confirm_request")
def confirm(request: HttpRequest, request_id: Id) -> Any:
    """Be the second person: it is carried out at once. 409 where it is over, or not what was asked about any more."""
    _find(request, request_id)
    return one(request, _item(request, cases.confirm(request_id, actor=actor_of(request))))


@router.post("/requests/{request_id}/refuse", response={200: RequestItem, **WRITE}, operation_id="refuse_request")
def refuse(request: HttpRequest, request_id: Id, payload: RefuseIn) -> Any:
    """Refuse it with a reason; of the one who asked: take it back."""
    _find(request, request_id)
    return one(request, _item(request, cases.refuse(request_id, actor=actor_of(request), reason=payload.reason)))


@router.post("/repairs/{repair_id}/answers", response={200: Answered, **WRITE}, operation_id="answer_repair")
def answer(request: HttpRequest, repair_id: Id, payload: AnswerIn) -> Any:
    """Answer a repair that asks, with one of its `choices`."""
    may_view(request)
    _there(access.within(request.auth, Repair.objects.all(), prefix="instance__"), repair_id, "repair")
    told = {"choice": payload.choice, "reason": payload.reason}
    return {"repair": repair_id, "more": lifecycle.answer(repair_id, actor=actor_of(request), **told)}


@router.post("/repairs/{repair_id}/stop", response={200: schemas.RepairItem, **WRITE}, operation_id="stop_repair")
def stop(request: HttpRequest, repair_id: Id) -> Any:
    """Stop it after the step under way, and undo what it did; 409 once its irreversible step was taken."""
    may_view(request)
    rows = access.within(request.auth, views.repairs(), prefix="instance__")
    _there(rows, repair_id, "repair")
    lifecycle.ask_stop(repair_id, actor=actor_of(request))
    return one(request, views.repair(rows.get(pk=repair_id)))


@router.post("/cases/{case_id}/undo", response={200: schemas.CaseItem, **WRITE}, operation_id="undo_case")
def undo(request: HttpRequest, case_id: Id) -> Any:
    """Take the last decision back: at once in its undo time, later by stopping the repair between two steps."""
    may_view(request)
    rows = access.within(request.auth, views.cases())
    _there(rows, case_id, "case")
    answers.undo(case_id, actor=actor_of(request))
    return one(request, views.case(rows.get(pk=case_id)))


def _there(rows: Any, pk: int, what: str) -> None:
    if not rows.filter(pk=pk).exists():
        raise NotFound(f"There is no {what} {pk}.")


def _find(request: HttpRequest, pk: int) -> Request:
    may_view(request)
    found = second.seen(request.auth, Request.objects.filter(pk=pk).select_related("account"))
    if not found:
        raise NotFound(f"There is no request {pk}.")
    return found[0]


def _item(request: HttpRequest, row: Request) -> dict[str, Any]:
    names = ("kind", "subject", "what", "reason", "region", "pool", "asked_by", "asked_at", "expires_at", "answered_by",
             "answered_at", "answer")  # fmt: skip
    late = row.state == "WAITING" and row.expires_at <= clock.now()  # it is ended within a minute
    open_ = row.state == "WAITING" and not late
    return {
        "id": row.pk, "state": "EXPIRED" if late else row.state, **{name: getattr(row, name) for name in names},
        "account": row.account.account_id if row.account else "", "why_not": _why_not(request, row) if open_ else None,
    }  # fmt: skip


def _why_not(request: HttpRequest, row: Request) -> str | None:
    actor = actor_of(request)
    (shown,) = cases.shown(request.auth, [row])
    return shown.why_not or (None if actor.recent else access.again(actor).message)

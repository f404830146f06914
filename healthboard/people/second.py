"""What takes two people: asked for by one, confirmed by another who is neither the one who asked nor who last edited the
policy in force. The only writer of `Request`; what is carried out stands in `repairs.second` and `cases.second`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people import access
from healthboard.people.actors import CLOCK, Actor
from healthboard.people.models import Request
from healthboard.refusals import AlreadyDecided, Closed, Invalid, NotAllowed, NotFound, Refusal

#: how long a request may be confirmed; as every expiry, not divided by the sandbox's speed
EXPIRY = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Kind:
    title: str
    ask: str  # verb of the one who asks
    confirm: str  # verb of the second person


KINDS = {
    "release": Kind("Release a breaker", "release", "second"),
    "release_case": Kind("Release a group case and its breakers", "release", "second"),
    "terminate_first": Kind("Terminate before the replacement serves", "decide", "terminate_first"),
    "force_tasks": Kind("Give up the tasks that do not leave", "decide", "terminate_first"),
    "over_budget": Kind("Start one repair over the budget", "over_budget", "second"),
}


def place_of(row: Request) -> dict[str, Any]:
    return {"account": row.account, "region": row.region, "pool": row.pool}


def waiting(*subjects: str) -> QuerySet[Request]:
    """Requests that can still be confirmed; all of them where no subject is named."""
    rows = Request.objects.filter(state="WAITING", expires_at__gt=clock.now()).select_related("account")
    return (rows.filter(subject__in=subjects) if subjects else rows).order_by("asked_at")


def seen(user: Any, rows: Iterable[Request]) -> list[Request]:
    """Those of places that the person may see."""
    hidden = access.asking(user, "view")
    return [row for row in rows if hidden(**place_of(row)) is None]


def shown(rows: Iterable[Request], user: Any, why: Callable[[Request, Any], str | None]) -> list[Request]:
    """For a page: each with why this person may not confirm it (None: may), and whether it is their own."""
    found = list(rows)
    for row in found:
        row.mine, row.why_not = row.asked_by_user_id == user.pk, why(row, user)
    return found


@transaction.atomic
def ask(
    kind: str, subject: str, *, actor: Actor, reason: str, what: str, account: Any = None, region: str = "",
    pool: str = "", seen: str = "",
) -> Request:  # fmt: skip
    """Ask for it. `seen` names what it is asked about: where that differs at the confirmation, it is refused.
    Raises Invalid, NotAllowed, AlreadyDecided."""
    access.require(actor, KINDS[kind].ask, account=account, region=region, pool=pool)
    if not actor.recent:
        raise access.again(actor)
    if not reason.strip():
        raise Invalid("Say why: the second person will want to know.")
    now = clock.now()
    for old in Request.objects.select_for_update().filter(kind=kind, subject=subject, state="WAITING"):
        if old.expires_at > now:
            raise AlreadyDecided(f"{old.asked_by} has asked for this already: another person confirms it.")
        _end(old, "EXPIRED", CLOCK, "nobody confirmed it in time")
    try:
        with transaction.atomic():
            row = Request.objects.create(
                kind=kind, subject=subject, what=what[:255], reason=reason.strip()[:255], account=account,
                region=region, pool=pool, seen=seen, asked_by=actor.name[:150], asked_by_user=actor.user, asked_at=now,
                expires_at=now + EXPIRY, token=actor.token,
            )  # fmt: skip
    except IntegrityError:
        raise AlreadyDecided("Somebody asked for this at the same moment: another person confirms it.") from None
    record("second.asked", subject, f"{what}: asked for by {actor.name}, waits for a second person: {row.reason}",
           actor=actor, payload={"request": row.pk, "kind": kind, "expires_at": row.expires_at.isoformat()},
           **_of(subject, account, region))  # fmt: skip
    return row


def why_not(row: Request, actor_user: Any, *, editors: Iterable[int], requesters: Iterable[str] = ()) -> str | None:
    """None where this person may be the second one, else the reason; a recent log-in is asked for on top."""
    kind = KINDS[row.kind]
    if actor_user is None:
        return "Log in first."
    name = actor_user.get_username()
    if actor_user.pk == row.asked_by_user_id or name == row.asked_by:
        return "You asked for it: another person must confirm it."
    if name in set(requesters):
        return "You asked for the repair: another person must confirm this."
    if why := access.why_not(actor_user, kind.confirm, **place_of(row)):
        return why
    if actor_user.pk in set(editors):
        return "You were the last to edit the policy in force: another person must confirm this."
    return None


def locked(request_id: int) -> Request:
    """The request, locked. Raises NotFound, or Closed where it is over."""
    row = Request.objects.select_for_update(of=("self",)).select_related("account", "asked_by_user", "token").filter(
        pk=request_id
    ).first()  # fmt: skip
    if row is None:
        raise NotFound(f"There is no request {request_id}.")
    if row.state != "WAITING":
        raise Closed(f"This request is over: {row.get_state_display()} by {row.answered_by}.")
    if row.expires_at <= clock.now():
        raise Closed("This request has expired: ask anew.")
    return row


def check(
    row: Request, second: Actor, *, editors: Iterable[int], seen: str = "", requesters: Iterable[str] = ()
) -> Actor:
    """Everything that stands against confirming it now; returns who asked, as they are now. Raises a `Refusal`."""
    if not second.is_person:
        raise NotAllowed("Only a person may do this.")
    if why := why_not(row, second.user, editors=editors, requesters=requesters):
        raise NotAllowed(why)
    if not second.recent:
        raise access.again(second)
    if gone := access.withdrawn(asked_as(row), **place_of(row)):
        raise NotAllowed(f"{gone} Ask anew.")
    if seen != row.seen:
        raise Closed("It is not what was asked about any more: ask anew.")
    return Actor(name=row.asked_by, via="web", user=row.asked_by_user, request_id=second.request_id, recent=True)


def asked_as(row: Request) -> list[dict[str, Any]]:
    """Who asked, as `access.withdrawn` reads it."""
    return [access.given(row.asked_by_user, row.asked_by, KINDS[row.kind].ask, row.token_id)]


def confirmed(row: Request, second: Actor, answer: str = "") -> None:
    _end(row, "CONFIRMED", second, answer)


@transaction.atomic
def refuse(request_id: int, *, actor: Actor, reason: str) -> Request:
    """The one who asked takes it back; anybody who could confirm it, or could have asked, may refuse it."""
    row = locked(request_id)
    if not actor.is_person:
        raise NotAllowed("Only a person may do this.")
    if actor.user.pk == row.asked_by_user_id:
        if why := access.token_why_not(actor.user, "undo"):
            raise NotAllowed(why)
        _end(row, "WITHDRAWN", actor, reason)
        return row
    kind = KINDS[row.kind]
    if (why := access.why_not(actor.user, kind.confirm, **place_of(row))) and access.why_not(
        actor.user, kind.ask, **place_of(row)
    ):
        raise NotAllowed(why)
    if not reason.strip():
        raise Invalid("Say why: the one who asked will want to know.")
    _end(row, "REFUSED", actor, reason)
    return row


def keep_refusal(subject: str, actor: Actor, refusal: Refusal) -> None:
    """What was refused is on record with its reason. A log-in that is too old only leads to a fresh one."""
    if not refusal.details.get("again"):
        with transaction.atomic():
            text = f"{actor.name} refused: {refusal.message}"
            record("second.refused", subject, text, actor=actor, payload={"reason": refusal.message})


def expire_due() -> int:
    """Requests that nobody confirmed in time end; nothing is done."""
    ended = 0
    for pk in Request.objects.filter(state="WAITING", expires_at__lte=clock.now()).values_list("pk", flat=True)[:100]:
        with transaction.atomic():
            row = Request.objects.select_for_update().get(pk=pk)
            if row.state == "WAITING":
                _end(row, "EXPIRED", CLOCK, "nobody confirmed it in time")
                ended += 1
    return ended


def drop(subject: str, why: str, *, actor: Actor) -> None:
    """What was asked for is moot. Call inside the transaction that makes it so."""
    for row in Request.objects.select_for_update().filter(subject=subject, state="WAITING"):
        _end(row, "WITHDRAWN", actor, why)


def _end(row: Request, state: str, actor: Actor, answer: str) -> None:
    row.state, row.answered_by, row.answered_by_user = state, actor.name[:150], actor.user
    row.answered_at, row.answer = clock.now(), answer.strip()[:255]
    row.save(update_fields=["state", "answered_by", "answered_by_user", "answered_at", "answer"])
    said = f": {row.answer}" if row.answer else ""
    record(f"second.{state.lower()}", row.subject, f"{row.what}: {row.get_state_display()} by {actor.name}{said}",
           actor=actor, payload={"request": row.pk, "kind": row.kind, "asked_by": row.asked_by},
           **_of(row.subject, row.account, row.region))  # fmt: skip


def _of(subject: str, account: Any, region: str) -> dict[str, Any]:
    """Where its rows of the record belong: with their case or repair, so that their pages show them; those of a breaker
    with its place."""
    kind, _, pk = subject.partition(":")
    return {f"{kind}_id": int(pk)} if kind in ("case", "repair") else {"account": account, "region": region}

"""The second person's answer to whatever was asked for, and the release of a group case, which takes two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from healthboard.cases import answers, groups
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.people import second
from healthboard.people.actors import Actor
from healthboard.people.models import Request
from healthboard.refusals import Closed, Invalid, NotFound
from healthboard.repairs import second as repairs
from healthboard.repairs.models import Breaker


def ask_release(case_id: int, *, actor: Actor, reason: str) -> Request:
    """Ask for the release of a group case with its breakers."""
    with repairs.on_record(f"case:{case_id}", actor), transaction.atomic():
        group = Case.objects.filter(pk=case_id, instance=None).first()  # unlocked: members are locked before it
        if group is None:
            raise NotFound(f"There is no correlated case {case_id}.")
        if group.state == State.CLOSED:
            raise Closed("It was released already.")
        if group.breaker_id is None:
            raise Invalid("This case holds nothing that could be released: it closes by itself when it is over.")
        row = second.ask(
            "release_case", f"case:{group.pk}", actor=actor, reason=reason, what=f"Release: {group.title}"[:255],
            account=group.account, region=group.region, pool=group.pool.name if group.pool else "",
            seen=groups.extent(group),
        )  # fmt: skip
        repairs.tell(row, link=f"/cases/{group.pk}/", thread=f"case:{group.pk}")
        return row


def ask_release_of(breaker_id: int, *, actor: Actor, reason: str) -> Request:
    """Ask for the release of a breaker: with its group case where one holds by it, so that the members go their way."""
    group = groups.holding(breaker_id)
    if group is not None:
        return ask_release(group.pk, actor=actor, reason=reason)
    return repairs.ask_release(breaker_id, actor=actor, reason=reason)


def confirm(request_id: int, *, actor: Actor) -> Request:
    """The second person agrees: what was asked for is carried out in the same transaction. Raises a `Refusal`."""
    subject = Request.objects.filter(pk=request_id).values_list("subject", flat=True).first() or f"request:{request_id}"
    with repairs.on_record(subject, actor), transaction.atomic():
        repairs.lock(subject)  # before the request, as the asking does
        _lock(subject)
        row = second.locked(request_id)
        second.confirmed(row, actor)
        if row.kind == "release_case":
            group = Case.objects.get(pk=int(row.subject.partition(":")[2]))
            asker = second.check(row, actor, editors=_editors(group), seen=groups.extent(group))
            answers.release(group.pk, actor=asker, reason=row.reason, second=actor)
        else:
            repairs.confirm(row, actor=actor)
        return row


def refuse(request_id: int, *, actor: Actor, reason: str) -> Request:
    subject = Request.objects.filter(pk=request_id).values_list("subject", flat=True).first() or f"request:{request_id}"
    with repairs.on_record(subject, actor):
        return second.refuse(request_id, actor=actor, reason=reason)


def waiting(user: Any, group: Case) -> list[Request]:
    """What was asked for about a group case, as this person sees it."""
    return shown(user, second.waiting(f"case:{group.pk}"))


def shown(user: Any, rows: Iterable[Request]) -> list[Request]:
    """Any requests, as this person sees them."""
    return second.shown(rows, user, _why_not)


def _why_not(row: Request, user: Any) -> str | None:
    if row.kind != "release_case":
        return repairs.why_not(row, user)
    if why := second.why_not(row, user, editors=()):
        return why
    group = Case.objects.filter(pk=row.subject.partition(":")[2]).first()
    return second.why_not(row, user, editors=_editors(group) if group else ())


def version(case: Case) -> list[int]:
    """What changes on its page when something was asked for or answered."""
    return list(second.waiting(f"case:{case.pk}").values_list("pk", flat=True)) if case.instance_id is None else []


def _lock(subject: str) -> None:
    """Lock the members of a group case, then the case: what is released is no more than what is compared."""
    kind, _, pk = subject.partition(":")
    if kind == "case":
        list(Case.objects.select_for_update().filter(parent_id=int(pk), state=State.HELD).order_by("pk"))
        Case.objects.select_for_update().filter(pk=int(pk), instance=None).first()


def _editors(group: Case) -> set[int]:
    rows = Breaker.objects.filter(pk__in=groups.breakers_of(group)).select_related("account")
    return set().union(*(repairs.editors_of_breaker(row) for row in rows))

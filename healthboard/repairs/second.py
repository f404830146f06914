"""What takes two people about repairs and breakers: asked for here, and carried out once another person has confirmed.

A correlated breaker that a case holds by is released with its case, see `cases.second`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from healthboard import words
from healthboard.audit.record import digest
from healthboard.notices import outbox
from healthboard.people import second
from healthboard.people.actors import Actor
from healthboard.people.models import Request
from healthboard.people.second import KINDS
from healthboard.policies import matching
from healthboard.refusals import Closed, Invalid, NotFound, Refusal
from healthboard.repairs import brakes, budget, lifecycle
from healthboard.repairs.agreement import editors, place
from healthboard.repairs.models import Breaker, Repair
from healthboard.repairs.states import State


def ask_release(breaker_id: int, *, actor: Actor, reason: str) -> Request:
    """Ask for the release of a breaker that no case holds by."""
    with on_record(f"breaker:{breaker_id}", actor), transaction.atomic():
        row = _breaker(breaker_id)
        pool = row.scope if row.scope_kind == "pool" else ""
        asked = second.ask(
            "release", f"breaker:{row.pk}", actor=actor, reason=reason, what=f"Release {row.title}: {row.where}"[:255],
            account=row.account, region=row.region, pool=pool,
        )  # fmt: skip
        tell(asked, link="/system/#breakers", thread=f"breaker:{row.pk}")
        return asked


def ask_answer(repair_id: int, *, actor: Actor, choice: str, reason: str) -> Request:
    """Ask for an answer that takes two people, of a repair that asks."""
    with on_record(f"repair:{repair_id}", actor), transaction.atomic():
        row = _repair(repair_id)
        if row.state != State.ASKING:
            raise Closed("This repair does not wait for an answer any more.")
        offered = {c["key"]: c for c in row.facts.get("choices", [])}
        if choice not in offered or choice not in KINDS:
            raise Invalid(f"Choose one of: {', '.join(offered) or 'nothing'}.")
        asked = second.ask(
            choice, f"repair:{row.pk}", actor=actor, reason=reason, what=f"{offered[choice]['title']}: {_named(row)}"[:255],
            seen=question(row), **place(row),
        )  # fmt: skip
        tell(asked, link=f"/repairs/{row.pk}/", thread=lifecycle.thread(row))
        return asked


def ask_over_budget(repair_id: int, *, actor: Actor, reason: str) -> Request:
    """Ask that one repair, which waits for its pool's budget, may start all the same."""
    with on_record(f"repair:{repair_id}", actor), transaction.atomic():
        row = _repair(repair_id)
        _takes_a_unit(row)
        if not waits_for_budget(row):
            raise Closed("This repair does not wait for the budget of its pool.")
        asked = second.ask(
            "over_budget", f"repair:{row.pk}", actor=actor, reason=reason,
            what=f"Start over the budget of {row.pool}: {_named(row)}"[:255], **place(row),
        )  # fmt: skip
        tell(asked, link=f"/repairs/{row.pk}/", thread=lifecycle.thread(row))
        return asked


def waits_for_budget(row: Repair) -> bool:
    return row.state == State.SCHEDULED and row.pool_id is not None and row.why_waiting.startswith(budget.FULL)


def _takes_a_unit(row: Repair) -> None:
    """Refuse what could never be used: a machine that is out already waits for the other repair, and takes no unit."""
    if row.why_waiting.startswith(budget.OUT_ALREADY):
        raise Closed("Its machine is out already and takes no unit: it starts once no other repair runs in its pool.")


def confirm(row: Request, *, actor: Actor) -> None:
    """Carry out what was asked for, as the second person. `row` is locked; call inside its transaction."""
    kind, _, pk = row.subject.partition(":")
    if kind == "breaker":
        breaker = _breaker(int(pk))
        asker = second.check(row, actor, editors=editors_of_breaker(breaker))
        brakes.release_breaker(breaker.pk, asker, row.reason, second=actor)
        return
    repair = _repair(int(pk))
    stands = question(repair) if row.kind != "over_budget" else ""
    asker = second.check(row, actor, editors=editors(repair), seen=stands, requesters=requesters(repair))
    if row.kind == "over_budget":
        _takes_a_unit(repair)
        lifecycle.allow_over_budget(repair, request=row, asker=asker, second=actor)
    else:
        lifecycle.answer(repair.pk, actor=asker, choice=row.kind, reason=row.reason, second=actor)


def lock(subject: str) -> None:
    """Lock the repair or breaker that a request is about."""
    kind, _, pk = subject.partition(":")
    if kind in (models := {"repair": Repair, "breaker": Breaker}):
        models[kind].objects.select_for_update().filter(pk=int(pk)).first()


def waiting(user: Any, *subjects: str) -> list[Request]:
    """What was asked for about these repairs and breakers, as this person sees it."""
    return second.shown(second.waiting(*subjects), user, why_not) if subjects else []


def version(repair_id: int) -> list[int]:
    """What changes on its page when something was asked for or answered."""
    return list(second.waiting(f"repair:{repair_id}").values_list("pk", flat=True))


def why_not(row: Request, user: Any) -> str | None:
    """Why this person may not confirm it, or None. Who edited the policies is looked for last: it takes the most."""
    kind, _, pk = row.subject.partition(":")
    if kind == "breaker":
        if why := second.why_not(row, user, editors=()):
            return why
        breaker = Breaker.objects.select_related("account").filter(pk=pk).first()
        return second.why_not(row, user, editors=editors_of_breaker(breaker) if breaker else ())
    repair = Repair.objects.select_related("instance", "policy_version").filter(pk=pk).first()
    if repair is None:
        return "The repair is gone."
    return second.why_not(row, user, editors=editors(repair), requesters=requesters(repair))


def editors_of_breaker(breaker: Breaker) -> set[int]:
    by_kind = {breaker.scope_kind: breaker.scope}
    target = matching.Target(
        account=breaker.account.account_id if breaker.account else "", region=breaker.region,
        pool=by_kind.get("pool", ""), workload=by_kind.get("workload", ""),
    )  # fmt: skip
    found = matching.combine(matching.snapshots(), [target]).versions
    return {v.saved_by_id for v in found if v.saved_by_id}


def requesters(repair: Repair) -> set[str]:
    """Whoever asked for the repair as it is: all who approved it, or chose to go further. A machine's proposal has no
    requester. Who allowed an exception asked for no repair."""
    gave = {word["name"] for word in repair.facts.get("words") or () if not word.get("exception")}
    return gave if repair.automatic else {repair.requested_by, *gave}


def question(repair: Repair) -> str:
    """Names the question that a repair puts, so that an answer is carried out to that one only."""
    number = repair.steps.count()
    return digest([repair.state, repair.step, number, repair.why_waiting, repair.facts.get("choices")])


def tell(row: Request, *, link: str, thread: str) -> None:
    outbox.announce(
        key=f"second-{row.pk}", kind="second_person", subject=f"{row.what}: wants a second person", body=row.reason, link=link,
        thread=thread, account=row.account.account_id if row.account else "", region=row.region, pool=row.pool,
        facts={"Asked by": row.asked_by, "Expires": f"{row.expires_at:%Y-%m-%d %H:%M} UTC"},
    )  # fmt: skip


@contextmanager
def on_record(subject: str, actor: Actor) -> Iterator[None]:
    """A refusal within leaves an audit row, once its own transaction was rolled back."""
    try:
        yield
    except Refusal as refusal:
        second.keep_refusal(subject, actor, refusal)
        raise


def _named(row: Repair) -> str:
    return f"{words.action(row.action).lower()} {row.instance}"


def _breaker(breaker_id: int) -> Breaker:
    row = Breaker.objects.select_for_update(of=("self",)).select_related("account").filter(pk=breaker_id).first()
    if row is None:
        raise NotFound(f"There is no breaker {breaker_id}.")
    if row.released_at is not None:
        raise Closed(f"Already released by {row.released_by}.")
    return row


def _repair(repair_id: int) -> Repair:
    rows = Repair.objects.select_for_update(of=("self",)).select_related("instance__account", "pool", "policy_version")
    row = rows.filter(pk=repair_id).first()
    if row is None:
        raise NotFound(f"There is no repair {repair_id}.")
    return row

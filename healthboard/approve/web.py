"""Small helpers of the pages where people decide: whose click it is, and where to go after it."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from healthboard.cases.models import Case, Decision
from healthboard.people import access
from healthboard.people.detour import log_in_again
from healthboard.people.web import actor_of
from healthboard.words import listing

__all__ = ["actor_of", "log_in_again", "may", "not_alone", "reasons", "see_other"]


def see_other(request: HttpRequest, where: str, said: str = "") -> HttpResponse:
    """After a POST: say what was done on the page that follows."""
    if said:
        messages.success(request, said)
    return HttpResponseRedirect(where, status=303)


def reasons(rows: Iterable[tuple[str, str | None]]) -> list[str]:
    """Why buttons are greyed out, as sentences: each reason once, with the buttons that it is about unless it is all of
    them. `rows`: (what a button says, its reason or None)."""
    every = list(rows)
    by_reason: dict[str, list[str]] = {}
    for title, why in every:
        if why:
            by_reason.setdefault(why, []).append(title)
    return [why if len(of) == len(every) else f"{listing(of, most=len(of))}: {why}" for why, of in by_reason.items()]


def may(request: HttpRequest, verb: str, case: Case) -> str | None:
    """None, or why this person may not do `verb` in the case's scope, in words."""
    return access.why_not(
        request.user, verb, account=case.account, region=case.region, pool=case.pool.name if case.pool else ""
    )


def not_alone(decision: Decision) -> str:
    """What is said after an answer that the policy wants of more people than this one; else nothing."""
    return " It starts once another person has approved it." if decision.outcome == "PENDING" else ""

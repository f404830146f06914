"""Repairs: those under way with live steps, those past, one with every call; answers where one asks; stop and undo."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from healthboard import pages, words
from healthboard.exports import FORMATS, export, first
from healthboard.fleet import foreign
from healthboard.people import access, detour
from healthboard.people.web import actor_of
from healthboard.refusals import Invalid, NotFound, Refusal
from healthboard.repairs import agreement, queries, second, waiting
from healthboard.repairs.history import expect
from healthboard.repairs.models import Repair
from healthboard.repairs.progress import progress
from healthboard.repairs.states import OPEN

#: columns of a repair that are sentences, or hold some; what is shown is not saved
SENTENCES = ("why_waiting", "outcome_why", "plan")


@pages.page
def repairs(request: HttpRequest) -> HttpResponse:
    names = ("state", "pool", "action", "by", "since", "q")
    params = {name: request.GET.get(name, "").replace("\0", "").strip() for name in names}
    if (kind := request.GET.get("format")) in FORMATS:
        seen = _seen(request)
        rows = [
            *queries.running(queries.under_way(seen, params)),
            *first(queries.before(queries.past(seen, params), None)),
        ]
        return export("repairs", queries.COLUMNS, map(queries.as_dict, rows), kind, access.seeing(request.user))
    after = pages.unpack(request.GET.get("after", ""), 2)
    shown = pages.version(queries.version(), request.GET.urlencode())
    return pages.live(request, "repairs.html", shown, lambda: _list(request, params, after))


def _seen(request: HttpRequest) -> QuerySet[Repair]:
    return access.within(request.user, Repair.objects.all(), prefix="instance__")


def _list(request: HttpRequest, params: dict[str, str], after: list[Any] | None) -> dict[str, Any]:
    seen, see = _seen(request), access.seeing(request.user)
    past = list(queries.before(queries.past(seen, params), after)[: pages.PAGE_SIZE + 1])
    more, past = len(past) > pages.PAGE_SIZE, past[: pages.PAGE_SIZE]
    open_state = params["state"] if params["state"] in list(OPEN) else ""
    # the form is for the past; what is under way is always shown whole, unless one of its states is asked for
    running = [] if after else queries.running(queries.under_way(seen, params) if open_state else seen)
    expected = expect(running)
    for row in running:
        row.expected = expected.get(row.pk)
    return {
        "running": foreign.rows(see, running, "why_waiting"),
        "past": foreign.rows(see, past, "outcome_why"),
        "next": pages.pack([past[-1].closed_at, past[-1].pk]) if more else "",
        "paged": after is not None,
        "params": params,
        "filtered": any(params.values()),
        "open_state": open_state,
    }


def _find(request: HttpRequest, pk: int) -> Repair:
    found = queries.get(_seen(request), pk)
    if found is None:
        raise NotFound(f"There is no repair {pk}.")
    return foreign.rows(access.seeing(request.user), [found], *SENTENCES)[0]


@pages.page
def repair(request: HttpRequest, pk: int) -> HttpResponse:
    found = _find(request, pk)
    return pages.live(
        request,
        "repair.html",
        pages.version(queries.version(pk), waiting.version(), second.version(pk)),
        lambda: _context(request, found),
    )


def _context(request: HttpRequest, found: Repair) -> dict[str, Any]:
    see = access.seeing(request.user)
    waits = waiting.waiting_for(found.instance, _case_of(found), found) if found.closed_at is None else []
    return {
        "repair": found,
        "instance": found.instance,
        "decision": getattr(found, "decision", None),
        "progress": foreign.plain(see, progress(found)),
        "expected": expect([found]).get(found.pk) if found.closed_at is None else None,
        "waiting": foreign.rows(see, waits, "text"),
        "occupancy": getattr(found, "occupancy", None),
        "given": detour.given(request),
        "choices": agreement.choices(found, request.user),
        "two": second.waiting(request.user, f"repair:{found.pk}") if found.closed_at is None else [],
        "over_budget": second.waits_for_budget(found),
        "over_budget_why_not": _may(request, "over_budget", found) if second.waits_for_budget(found) else None,
        "stop_why_not": _may(request, "undo", found) or _no_stop(found),
    }


def _case_of(found: Repair) -> Any:
    decision = getattr(found, "decision", None)
    return decision.case if decision else None


def _may(request: HttpRequest, verb: str, found: Repair) -> str | None:
    at = found.instance
    return access.why_not(
        request.user, verb, account=at.account, region=at.region, pool=found.pool.name if found.pool else ""
    )


def _no_stop(found: Repair) -> str | None:
    if found.closed_at is not None:
        return "It is over."
    if found.state == "UNDOING":
        return "It is being undone."
    if found.stop_asked_by:
        return f"{found.stop_asked_by} asked for it; it stops after this step."
    if found.irreversible:
        return "Its irreversible step was taken: it can only go on."
    return None


@pages.page
@require_POST
def answer(request: HttpRequest, pk: int) -> HttpResponse:
    from healthboard.repairs import lifecycle

    choice, reason = request.POST.get("choice", ""), request.POST.get("reason", "")
    if not choice:
        return _refused(request, pk, Invalid("Choose one of the answers."))
    two, more = choice in second.KINDS, 0
    try:
        if two:
            _find(request, pk)
            second.ask_answer(pk, actor=actor_of(request), choice=choice, reason=reason)
        else:
            more = lifecycle.answer(pk, actor=actor_of(request), choice=choice, reason=reason)
    except Refusal as refusal:
        return _refused(request, pk, refusal)
    said = "Asked for: another person confirms it." if two else "Answered."
    return _done(request, pk, f"Your answer counts; {more} more must choose the same." if more else said)


@pages.page
@require_POST
def over_budget(request: HttpRequest, pk: int) -> HttpResponse:
    """Ask that this one repair may start over its pool's budget; another person confirms it."""
    _find(request, pk)
    try:
        second.ask_over_budget(pk, actor=actor_of(request), reason=request.POST.get("reason", ""))
    except Refusal as refusal:
        return _refused(request, pk, refusal)
    return _done(request, pk, "Asked for: another person confirms it.")


@pages.page
@require_POST
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    from healthboard.repairs import lifecycle

    try:
        lifecycle.ask_stop(pk, actor=actor_of(request))
    except Refusal as refusal:
        return _refused(request, pk, refusal)
    return _done(request, pk, words.stopped("Cancelled", _find(request, pk).state))


def _done(request: HttpRequest, pk: int, said: str) -> HttpResponse:
    messages.success(request, said)
    return HttpResponseRedirect(reverse("repair", args=[pk]), status=303)


def _refused(request: HttpRequest, pk: int, refusal: Refusal) -> HttpResponse:
    if refusal.details.get("again"):
        return detour.log_in_again(request, reverse("repair", args=[pk]))
    context = _context(request, _find(request, pk))
    return pages.explained(request, "repair.html", context, refusal, reverse("repair", args=[pk]))

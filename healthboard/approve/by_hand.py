"""Actions by hand on one instance: each a page with its plan and a form; and a pause of it, with reason and end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from healthboard import clock, words
from healthboard.approve import expected
from healthboard.approve.web import actor_of, log_in_again, not_alone, see_other
from healthboard.cases import by_hand
from healthboard.fleet import queries as fleet
from healthboard.fleet.models import Instance
from healthboard.pages import page
from healthboard.people import access, detour
from healthboard.refusals import Invalid, NotFound, Refusal
from healthboard.repairs import brakes

#: how long a pause may last: seconds in the form -> words
LENGTHS = {3600: "1 hour", 4 * 3600: "4 hours", 86400: "24 hours", 3 * 86400: "3 days", 7 * 86400: "7 days"}
#: the same by what the form sends
SECONDS = {str(seconds): seconds for seconds in LENGTHS}


def find(request: HttpRequest, pk: int) -> Instance:
    found = fleet.instance(access.within(request.user, Instance.objects.all()), pk=pk)
    if found is None:
        raise NotFound("There is no such instance.")
    return found


@page
def act(request: HttpRequest, pk: int, action: str) -> HttpResponse:
    """GET: the plan and the form. POST: ask for it; a changed world is shown anew with status 409."""
    found, action = find(request, pk), action.upper()
    if request.method != "POST":
        written = {"given": detour.given(request).get("reason", "")}
        return render(request, "act.html", {**_context(request, found, action), **written})
    reason = request.POST.get("reason", "")
    try:
        decision = by_hand.ask(
            pk, actor=actor_of(request), action=action, reason=reason, seen=request.POST.get("seen", "")
        )
    except Invalid as refusal:
        context = {**_context(request, found, action), "error": refusal.message, "given": reason}
        return render(request, "act.html", context, status=refusal.status)
    except NotFound:
        raise
    except Refusal as refusal:
        if refusal.details.get("again"):
            return log_in_again(request, request.path)
        request.refusal = refusal.message
        found.refresh_from_db()
        context = {**_context(request, found, action), "refusal": refusal, "given": reason}
        return render(request, "act.html", context, status=refusal.status)
    said = f"Asked for: {words.action(action).lower()}.{not_alone(decision)}"
    return see_other(request, reverse("case", args=[decision.case_id]), said)


def _context(request: HttpRequest, found: Instance, action: str) -> dict[str, Any]:
    shown = by_hand.offer(found, action)
    button = next(b for b in by_hand.buttons(found, request.user) if b["action"] == action)
    return {
        "instance": found, "action": action, "title": button["title"], "plan": shown.plan, "seen": shown.seen,
        **expected.of(found, action, shown.plan), "case": shown.case, "why_not": button["why_not"], "assessment": shown.reading.assessment,
    }  # fmt: skip


@page
def pause(request: HttpRequest, pk: int) -> HttpResponse:
    """GET: the form. POST: nothing is changed about this instance until the pause ends."""
    found = find(request, pk)
    pool = found.pool.name if found.pool else ""
    context: dict[str, Any] = {
        "instance": found, "lengths": LENGTHS,
        "why_not": access.why_not(request.user, "pause", account=found.account, region=found.region, pool=pool),
    }  # fmt: skip
    if request.method != "POST":
        return render(request, "pause.html", context)
    raw = request.POST.get("length", "")
    try:
        if raw not in SECONDS:
            raise Invalid("Choose how long the pause lasts.")
        brakes.pause(
            actor=actor_of(request), scope_kind="instance", scope=found.instance_id, pool=pool, account=found.account,
            region=found.region, reason=request.POST.get("reason", ""),
            until=clock.now() + timedelta(seconds=SECONDS[raw]),
        )  # fmt: skip
    except Refusal as refusal:
        request.refusal = refusal.message
        context |= {"error": refusal.message, "given": request.POST}
        return render(request, "pause.html", context, status=refusal.status)
    return see_other(request, reverse("instance", args=[pk]), "Paused: nothing is changed about it until then.")

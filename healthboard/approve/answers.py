"""The four answers, undo and release: each a plain form that posts what the person saw (plan version and evidence)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST

from healthboard import words
from healthboard.approve.web import actor_of, log_in_again, may, not_alone, see_other
from healthboard.cases import answers as answering
from healthboard.cases import second
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import State
from healthboard.pages import page
from healthboard.people import detour
from healthboard.refusals import Invalid, NotAllowed, NotFound, Refusal


@dataclass(frozen=True, slots=True)
class Answer:
    kind: str
    button: str
    key: str
    reason: str  # required, optional or empty
    does: str  # what it does, in one sentence
    done: str


KINDS = {
    "approve": Answer("approve", "Approve", "a", "optional", "Carry out the plan below as it is shown.", "Approved."),
    "override": Answer("override", "Override", "o", "required", "Do something else than proposed.", "Overridden."),
    "dismiss": Answer(
        "dismiss",
        "Dismiss",
        "d",
        "required",
        "Close the case and do nothing. New evidence opens a new one.",
        "Dismissed.",
    ),
    "snooze": Answer("snooze", "Snooze", "s", "optional", "Decide later; the case comes back by itself.", "Snoozed."),
}


def allowed_kinds(request: HttpRequest, case: Case) -> list[dict[str, Any]]:
    """Each answer with the reason why it can't be given now, or None."""
    why = may(request, "decide", case)
    rows = []
    for answer in KINDS.values():
        rows.append({"answer": answer, "why_not": why or _state_why_not(case, answer.kind)})
    return rows


def _state_why_not(case: Case, kind: str) -> str | None:
    match case.state:
        case State.CLOSED:
            return "The case is closed."
        case State.DECIDED:
            return "It is decided; undo that first."
        case State.HELD if kind != "snooze":
            return "A breaker holds it: release the group case first."
    if case.instance_id is None:
        return "A group case is released; its members are then answered one by one."
    if kind == "approve" and case.action in ("NONE", "WATCH", "HOLD", "NOTIFY_WORKLOAD"):
        return "No action is proposed; override to choose one."
    if kind == "override" and not any(c.get("action") != case.action for c in case.plan.get("choices", [])):
        return "There is no other action for this owner."
    return None


@page
def answer(request: HttpRequest, case_id: int, kind: str) -> HttpResponse:
    """GET: the answer's form as a page of its own. POST: decide; a changed world is shown with status 409."""
    from healthboard.approve import case as case_page

    if kind not in KINDS:
        raise NotFound(f"There is no answer {kind}.")
    case = case_page.find(request, case_id)
    context = {"case": case, "plan": case.plan, "answer": KINDS[kind], "why_not": may(request, "decide", case)}
    if request.method != "POST":
        return render(request, "answer.html", {**context, "given": detour.given(request)})
    try:
        decision = _decide(request, case_id, kind)
    except Invalid as refusal:
        context |= {"error": refusal.message, "given": request.POST}
        return render(request, "answer.html", context, status=refusal.status)
    except Refusal as refusal:
        if refusal.details.get("again"):
            return log_in_again(request, request.path)
        return case_page.refused(request, case_id, refusal)
    return see_other(request, reverse("case", args=[case_id]), f"{KINDS[kind].done}{not_alone(decision)}")


def _decide(request: HttpRequest, case_id: int, kind: str) -> Decision:
    post = request.POST
    try:
        plan_version, evidence = int(post["plan_version"]), post["evidence_hash"]
        snooze = int(post.get("snooze_s") or 0) or None
    except (KeyError, ValueError):
        raise Invalid("The form is incomplete: open the case again.") from None
    return answering.decide(
        case_id, actor=actor_of(request), kind=kind, action=post.get("action", ""), reason=post.get("reason", ""),
        plan_version=plan_version, evidence_hash=evidence, snooze_s=snooze,
    )  # fmt: skip


@page
@require_POST
def undo(request: HttpRequest, case_id: int) -> HttpResponse:
    from healthboard.approve import case as case_page

    try:
        answering.undo(case_id, actor=actor_of(request))
    except Refusal as refusal:
        return case_page.refused(request, case_id, refusal)
    repair = Decision.objects.filter(case=case_id).exclude(repair=None).latest("at", "pk").repair
    return see_other(request, reverse("case", args=[case_id]), words.stopped("Undone", repair.state))


@page
def release(request: HttpRequest, case_id: int) -> HttpResponse:
    """GET: the form as a page. POST: ask for the release of the group's breakers, which another person confirms."""
    from healthboard.approve import case as case_page

    case = case_page.find(request, case_id)
    where = reverse("case", args=[case_id])
    context = {"case": case, "why_not": may(request, "release", case)}
    if request.method != "POST":
        return render(request, "release.html", {**context, "given": detour.given(request)})
    try:
        second.ask_release(case_id, actor=actor_of(request), reason=request.POST.get("reason", ""))
    except Invalid as refusal:
        return render(
            request, "release.html", {**context, "error": refusal.message, "given": request.POST}, status=refusal.status
        )
    except NotAllowed as refusal:
        if refusal.details.get("again"):
            return log_in_again(request, request.path)
        return case_page.refused(request, case_id, refusal)
    except Refusal as refusal:
        return case_page.refused(request, case_id, refusal)
    return see_other(request, where, "Asked for: another person confirms the release.")

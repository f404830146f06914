"""The case page: what is wrong, who says so, what would be done and what it costs, and the four answers."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from healthboard import clock
from healthboard.approve import expected, machine, plots, says, sentence
from healthboard.approve.answers import KINDS, allowed_kinds
from healthboard.approve.web import may, reasons
from healthboard.cases import precedent, precedents, queries, second
from healthboard.cases.models import Case
from healthboard.diagnosis import outlook
from healthboard.fleet import foreign
from healthboard.fleet import queries as fleet
from healthboard.fleet.evidence import thresholds_of
from healthboard.fleet.models import Instance, NodeRequest
from healthboard.pages import explained, live, page
from healthboard.people import access
from healthboard.refusals import NotFound, Refusal
from healthboard.repairs import waiting
from healthboard.repairs.progress import progress

#: columns of a case that are sentences, or hold some
SENTENCES = ("title", "why", "why_waiting", "mode_why", "resolution_note", "plan")


def find(request: HttpRequest, case_id: int) -> Case:
    """The case, where this person may see it; a group case by any of its members. To be shown, not to be saved: its
    sentences count the instances that the person may not see."""
    case, see = queries.get(case_id), access.seeing(request.user)
    if case is None or not (foreign.sees_all(see) or _seen(see, case_id)):
        raise NotFound(f"There is no case {case_id}.")
    foreign.rows(see, filter(None, [case.breaker]), "why")
    return foreign.rows(see, [case], *SENTENCES)[0]


def _seen(see: foreign.See, case_id: int) -> bool:
    return see(Case.objects.filter(Q(pk=case_id) | Q(parent=case_id))).exists()


@page
def case(request: HttpRequest, case_id: int) -> HttpResponse:
    found = find(request, case_id)
    asked = _asked(found)
    mark = [queries.case_version(found, asked), waiting.version(), second.version(found)]
    return live(request, "case.html", mark, lambda: context(request, found, asked))


def _asked(found: Case) -> list[NodeRequest]:
    return fleet.requests(found.instance, 5) if found.instance else []


def refused(request: HttpRequest, case_id: int, refusal: Refusal) -> HttpResponse:
    """The fresh case, under what stood against the click: what changed, and who was first."""
    found = find(request, case_id)
    return explained(
        request, "case.html", context(request, found, _asked(found)), refusal, reverse("case", args=[case_id])
    )


def context(request: HttpRequest, found: Case, asked: list[NodeRequest]) -> dict[str, Any]:
    see = access.seeing(request.user)
    decisions = foreign.rows(see, queries.decisions(found), "reason", "outcome_why")
    repairs = [decision.repair for decision in decisions if decision.repair]
    foreign.rows(see, repairs, "why_waiting", "outcome_why")
    newest = repairs[0] if repairs else None
    undoable = newest is not None and _undoable(found, newest)
    evidence = found.evidence.order_by("-pk").first()
    kept = foreign.plain(see, (evidence.assessment if evidence else {}) or {})
    assessment = outlook.of_json(kept)
    limits = thresholds_of(evidence.inputs) if evidence else None
    instance = found.instance
    victims = fleet.by_ids(see(Instance.objects.all()), found, found.victims)
    members = queries.members(see, found) if instance is None else []
    members_total = found.members.count() if instance is None else 0
    gpus = fleet.gpus(instance) if instance else []
    before = precedent.of(see, found) if not found.by_hand else None
    answers = allowed_kinds(request, found)
    return {
        "case": found,
        "instance": instance,
        "plan": found.plan,
        "assessment": assessment or kept,
        "findings": assessment.findings if assessment else [],
        "outlook": outlook.outlook(assessment, thresholds=limits) if assessment and limits and found.open else [],
        "evidence": evidence,
        "says": says.rows([found.code, *found.codes]) if not found.by_hand else [],
        "picture": machine.picture(gpus, instance.gpus_expected, found.gpu) if instance else None,
        "neighbours": machine.neighbours(see, instance, found.code) if instance and not found.by_hand else {},
        "recording": plots.of_case(found, gpus),
        "plots_at": f"{reverse('case_recorder', args=[found.pk])}?",
        "job": sentence.in_job_terms(told, len(found.victims)) if (told := sentence.standing(see, found)) else "",
        "first_fault": sentence.first_fault(assessment, found, gpus) if instance else None,
        "checks": fleet.checks(instance) if instance else [],
        "events": fleet.events(instance, 20) if instance else [],
        "requests": asked,
        "victims": victims,
        "victims_more": len(found.victims) - len(victims),
        "members": members,
        "members_total": members_total,
        "members_more": members_total - len(members),
        "decisions": decisions,
        "repair": newest,
        "progress": foreign.plain(see, progress(newest)) if newest else [],
        "undo_until": newest.not_before if undoable else None,
        "undo_why_not": may(request, "undo", found) if undoable else None,
        "precedent": before,
        "statistics": precedents.of_case(found) if before and before["total"] else None,
        **_expected(found, newest),
        "timeline": foreign.rows(see, queries.timeline(found, repairs), "text"),
        "answers": answers,
        "why_greyed": reasons((row["answer"].button, row["why_not"]) for row in answers),
        "kinds": KINDS,
        "two": second.waiting(request.user, found) if instance is None and found.open else [],
        "release_why_not": may(request, "release", found) if instance is None else None,
        "impact": queries.impact(found),
        "waiting": foreign.rows(see, waiting.waiting_for(instance, found, newest), "text") if found.open else [],
    }


def _expected(found: Case, repair: Any) -> dict[str, Any]:
    if found.instance is None or not found.open:
        return {}
    under_way = repair is not None and repair.closed_at is None
    return expected.of(found.instance, repair.action if under_way else found.action, found.plan)


def _undoable(found: Case, repair: Any) -> bool:
    return found.open and repair.state == "SCHEDULED" and repair.not_before > clock.now()

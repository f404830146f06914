"""The instance page: what each source says of it, what runs on it, what was done, and why nothing is done now."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from healthboard.approve import machine, plots, says
from healthboard.approve.web import reasons
from healthboard.cases import by_hand
from healthboard.cases.models import Case
from healthboard.diagnosis import outlook
from healthboard.fleet import foreign
from healthboard.fleet import queries as fleet
from healthboard.fleet.models import Instance
from healthboard.pages import live, page
from healthboard.people import access, tokens
from healthboard.policies.reading import Reread, reread
from healthboard.refusals import NotFound
from healthboard.repairs import waiting
from healthboard.repairs.models import Repair


@page
def instance(request: HttpRequest, pk: int) -> HttpResponse:
    found = fleet.instance(access.within(request.user, Instance.objects.all()), pk=pk)
    if found is None:
        raise NotFound("There is no such instance.")
    cases = list(Case.objects.filter(instance=found).select_related("breaker").order_by("-pk")[:20])
    repairs = list(Repair.objects.filter(instance=found).order_by("-pk")[:20])
    for row in (*cases, *repairs):
        row.instance = found
    mark = [
        found.evidence_at, found.seen_at, found.node_seen_at, found.verdict, found.ecs_status, found.tasks_running,
        [(c.pk, c.changed_at) for c in cases], [(r.pk, r.state, r.step, r.why_waiting) for r in repairs],
        waiting.version(),
    ]  # fmt: skip
    return live(request, "instance.html", mark, lambda: context(request, found, cases, repairs))


@page
def by_name(request: HttpRequest, account: str, region: str, instance_id: str) -> HttpResponse:
    seen = access.within(request.user, Instance.objects.all())
    found = seen.filter(account__account_id=account, region=region, instance_id=instance_id).first()
    if found is None:
        raise NotFound(f"{instance_id} is not known in account {account}, {region}.")
    return redirect("instance", pk=found.pk)


def context(request: HttpRequest, found: Instance, cases: list[Case], repairs: list[Repair]) -> dict[str, Any]:
    open_case = next((case for case in cases if case.open), None)
    open_repair = next((repair for repair in repairs if repair.closed_at is None), None)
    seen = reread(found) if found.gone_at is None else None
    gpus, focus, see = fleet.gpus(found), _focus(seen), access.seeing(request.user)
    buttons = by_hand.buttons(found, request.user)
    return {
        "instance": found,
        "assessment": seen.assessment if seen else None,
        "findings": seen.assessment.findings if seen else [],
        "outlook": outlook.outlook(seen.assessment, thresholds=seen.thresholds) if seen else [],
        "says": says.rows(seen.assessment.codes) if seen else [],
        "stage": fleet.stage(
            open_case.state if open_case else None, open_repair.state if open_repair else None, found.gone_at
        ),
        "case": open_case,
        "repair": open_repair,
        "waiting": foreign.rows(see, waiting.waiting_for(found, open_case, open_repair), "text"),
        "checks": fleet.checks(found),
        "gpus": gpus,
        "picture": machine.picture(gpus, found.gpus_expected, focus),
        "neighbours": machine.neighbours(see, found, found.verdict_code),
        "recording": plots.of_instance(found, gpus, focus),
        "plots_at": f"{reverse('instance_recorder', args=[found.pk])}?{urlencode({'gpu': focus})}",
        "tasks": fleet.tasks(found),
        "events": fleet.events(found, 50),
        "intervals": fleet.intervals(found, 40),
        "requests": fleet.requests(found, 10),
        "cases": foreign.rows(see, cases, "title", "why", "why_waiting"),
        "buttons": buttons,
        "why_greyed": reasons((button["title"], button["why_not"]) for button in buttons),
        "repairs": foreign.rows(see, repairs, "why_waiting", "outcome_why"),
        "credential": tokens.standing(found),
        "replaces": Repair.objects.filter(replacement=found).select_related("instance").first(),
    }


def _focus(seen: Reread | None) -> str:
    """The GPU of the decisive finding."""
    primary = seen.assessment.primary if seen else None
    return (primary.gpu or "") if primary else ""

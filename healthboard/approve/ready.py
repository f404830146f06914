"""Ready to switch on? What was only observed, beside what people did about it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from healthboard.cases import ready as rehearsals
from healthboard.digits import number
from healthboard.pages import page
from healthboard.people import access
from healthboard.policies.visible import visible
from healthboard.repairs.models import Switch

DAYS = 30


@page
def ready(request: HttpRequest) -> HttpResponse:
    """`days` 7, 30 or 90; `policy` the number of one policy."""
    days = number(request.GET.get("days", ""))
    days = days if days in rehearsals.DAYS else DAYS
    see, wanted = access.seeing(request.user), number(request.GET.get("policy", ""))
    policy = visible(see).filter(pk=wanted).first() if wanted else None
    switch = Switch.objects.first()
    found = rehearsals.of(see, days=days, acting=switch is not None and switch.acting, policy=policy and policy.pk)
    may_edit = access.somewhere(request.user, "policy")
    context = {"found": found, "policy": policy, "choices": rehearsals.DAYS, "days": days, "may_edit": may_edit}
    return render(request, "ready.html", context)

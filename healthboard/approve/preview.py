"""The preview of a policy form: what it would have done, before it is saved. A plain form post; nothing is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render

from healthboard.cases import preview as previews
from healthboard.digits import number
from healthboard.pages import page
from healthboard.people import access
from healthboard.people.granted import acting
from healthboard.policies import versions, words
from healthboard.policies.models import Policy

DAYS = 7


@page
def preview(request: HttpRequest) -> HttpResponse:
    """POST of the admin's policy form. Evidence of pools that the person does not see is left out."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    if not access.somewhere(request.user, "policy"):
        raise PermissionDenied(access.why_not(request.user, "policy"))
    pk = number(request.POST.get("_policy", ""))
    policy = Policy.objects.filter(pk=pk).first() if pk is not None else None
    before = set(policy.versions.values_list("data__name", flat=True)) if policy else set()
    form = _form(request, policy)
    if not form.is_valid():
        return render(request, "preview.html", {"form": form, "policy": policy}, status=422)
    data = versions.data_of(form.instance)
    days = number(request.POST.get("_days", ""))
    days = days if days in previews.DAYS else DAYS
    found = previews.of(access.seeing(request.user), data, before=before, days=days)
    context = {
        "found": found,
        "whom": words.matches(data),
        "name": data["name"],
        "enabled": data["enabled"],
        "policy": policy,
    }
    return render(request, "preview.html", context)


def _form(request: HttpRequest, policy: Policy | None) -> Any:
    """The admin's own form, so that what is refused there is refused here; but for the age of the log-in, since
    nothing is saved, and the reason for the change, which may still be missing."""
    model_admin = admin.site.get_model_admin(Policy)
    if policy is not None and not model_admin.has_change_permission(request, policy):
        raise PermissionDenied("You may not edit this policy.")
    base = model_admin.get_form(request, policy, change=policy is not None)
    kind = type("PolicyForm", (base,), {"actor": replace(acting(request), recent=True)})
    form = kind(request.POST, instance=policy)
    form.fields["reason"].required = False
    return form

"""Hardware that was given back as broken: the list of it, and the word of an approver that a GPU may serve again."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from healthboard import pages
from healthboard.approve.web import actor_of, see_other
from healthboard.fleet import condemned as hardware
from healthboard.fleet.models import Gpu
from healthboard.pages import page
from healthboard.people import access
from healthboard.refusals import Invalid, NotFound

#: what a row of the list shows
SHOWN = ("uuid", "serial", "name", "region", "condemned_at", "condemned_why", "account__account_id", "account__alias",
         "instance__instance_id", "instance__gone_at")  # fmt: skip


@page
def condemned(request: HttpRequest) -> HttpResponse:
    """Newest first, continued by key."""
    after = pages.unpack(request.GET.get("after", ""), 1)
    rows = _seen(request).exclude(condemned_at=None).select_related("account", "instance").only(*SHOWN).order_by("-pk")
    if after is not None and isinstance(after[0], int):
        rows = rows.filter(pk__lt=after[0])
    found = list(rows[: pages.PAGE_SIZE + 1])
    shown = found[: pages.PAGE_SIZE]
    more = pages.pack([shown[-1].pk]) if len(found) > pages.PAGE_SIZE else ""
    return render(request, "condemned.html", {"gpus": shown, "next": more, "paged": after is not None})


@page
def lift(request: HttpRequest, pk: int) -> HttpResponse:
    """GET: the form as a page. POST: lift it; a refusal is shown beside the field, or as a page of its own."""
    gpu = _seen(request).select_related("account", "instance__pool").filter(pk=pk).first()
    if gpu is None:
        raise NotFound("There is no such GPU.")
    context = {"gpu": gpu, "why_not": _why_not(request, gpu)}
    if request.method != "POST":
        return render(request, "lift.html", context)
    try:
        hardware.lift(pk, actor=actor_of(request), reason=request.POST.get("reason", ""))
    except Invalid as refusal:
        return render(request, "lift.html", {**context, "error": refusal.message}, status=refusal.status)
    return see_other(request, reverse("condemned"), f"{gpu.uuid} may serve again.")


def _seen(request: HttpRequest) -> Any:
    return access.within(request.user, Gpu.objects.all(), pool="instance__pool__name")


def _why_not(request: HttpRequest, gpu: Gpu) -> str | None:
    if gpu.condemned_at is None:
        return "It is not condemned."
    pool = gpu.instance.pool.name if gpu.instance and gpu.instance.pool else ""
    return access.why_not(request.user, "lift", account=gpu.account, region=gpu.region, pool=pool)

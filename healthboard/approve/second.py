"""The second person's answer to what was asked for: confirm it, or refuse it (the one who asked takes it back)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_POST

from healthboard.approve.web import actor_of, log_in_again, see_other
from healthboard.cases import second
from healthboard.pages import page
from healthboard.people import access
from healthboard.people.models import Request
from healthboard.people.second import place_of
from healthboard.refusals import NotFound, Refusal


@page
@require_POST
def confirm(request: HttpRequest, pk: int) -> HttpResponse:
    row = _find(request, pk)
    try:
        second.confirm(pk, actor=actor_of(request))
    except Refusal as refusal:
        if refusal.details.get("again"):
            return log_in_again(request, _where(row))
        raise
    return see_other(request, _where(row), f"Confirmed: {row.what}.")


@page
@require_POST
def refuse(request: HttpRequest, pk: int) -> HttpResponse:
    row = _find(request, pk)
    ended = second.refuse(pk, actor=actor_of(request), reason=request.POST.get("reason", ""))
    return see_other(request, _where(row), f"{ended.get_state_display().capitalize()}: {row.what}.")


def _find(request: HttpRequest, pk: int) -> Request:
    row = Request.objects.select_related("account").filter(pk=pk).first()
    if row is None or access.why_not(request.user, "view", **place_of(row)):
        raise NotFound(f"There is no request {pk}.")
    return row


def _where(row: Request) -> str:
    """The page that a request belongs to."""
    kind, _, pk = row.subject.partition(":")
    return reverse("system") if kind == "breaker" else reverse(kind, args=[pk])


def where(row: Request) -> str:
    """Where a request is confirmed: its place on that page."""
    return f"{_where(row)}#{'breakers' if row.subject.startswith('breaker:') else 'second'}"

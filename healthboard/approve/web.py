"""Small helpers of the pages where people decide: whose click it is, and where to go after it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from healthboard.cases.models import Case
from healthboard.people import access
from healthboard.people.detour import log_in_again
from healthboard.people.web import actor_of

__all__ = ["actor_of", "log_in_again", "may", "see_other"]


def see_other(request: HttpRequest, where: str, said: str = "") -> HttpResponse:
    """After a POST: say what was done on the page that follows."""
    if said:
        messages.success(request, said)
    return HttpResponseRedirect(where, status=303)


def may(request: HttpRequest, verb: str, case: Case) -> str | None:
    """None, or why this person may not do `verb` in the case's scope, in words."""
    return access.why_not(
        request.user, verb, account=case.account, region=case.region, pool=case.pool.name if case.pool else ""
    )

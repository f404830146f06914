"""To the provider and back. Two addresses, both plain GETs: the provider's redirect can be nothing else."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from django.conf import settings
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from requests import RequestException

from healthboard.audit.record import record
from healthboard.people import detour, limits, sessions
from healthboard.people.oidc import client
from healthboard.people.web import actor_of, recent, stamp

log = logging.getLogger(__name__)
TOO_MANY = "Too many failed log-ins from here. Wait a quarter of an hour, or log in with a local password."


@never_cache
@require_GET
def login(request: HttpRequest) -> HttpResponse:
    """To the provider; back to ``?next=``, where that is a page of ours. ``?again=1``: it must ask anew."""
    _possible(request)
    if answer := _limited(request):
        return answer
    asked = request.GET.get("next", "")
    hosts = {request.get_host()}
    safe = url_has_allowed_host_and_scheme(asked, allowed_hosts=hosts, require_https=request.is_secure())
    where = asked if safe else resolve_url(settings.LOGIN_REDIRECT_URL)
    try:
        return client.begin(request, next_url=where, again=request.GET.get("again") == "1")
    except ImmediateHttpResponse as refused:
        return refused.response
    except (OAuth2Error, RequestException, ValueError) as error:
        log.warning("%s cannot be asked: %s", settings.OIDC.issuer, error)
        why = f"{settings.OIDC.name} does not answer as it should. Log in with a local password, or try again."
        return render(request, "registration/oidc_refused.html", {"why": why}, status=502)


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """The provider's answer: log in, with the roles that the groups say now."""
    _possible(request)
    if answer := _limited(request):
        return answer
    exchange, sent = client.Client(request), detour.kept_of(request)
    answer = client.Callback.adapter_view(exchange)(request)
    claims = getattr(request, "oidc", None)
    if claims is None or not request.user.is_authenticated or answer.status_code != 302:
        return answer
    detour.put_back(request, sent)  # the library's log-in begins a session without it
    sessions.begin(request)
    told = _asked_at(claims.get("auth_time"))
    if told is not None:
        stamp(request, told)
    name, address = request.user.get_username(), limits.address_of(request)
    limits.provider_succeeded(limits.origin_of(request, None))
    limits.keep_mark(request, answer, name)
    with transaction.atomic():
        text = f"{name} logged in from {address} by {settings.OIDC.name}"
        record("login", f"user:{request.user.pk}", text, actor=actor_of(request))
    if exchange.state.get("again") and not recent(request):  # the page that wanted it would only ask once more
        return _still_old(request, told)
    detour.logged_in_anew(request)
    return answer


def _asked_at(told: object) -> datetime | None:
    """How recent the log-in is, is what the provider says of when it asked the person; without a word it is not."""
    if not isinstance(told, (int, float)) or isinstance(told, bool):
        return None
    try:
        return datetime.fromtimestamp(told, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _still_old(request: HttpRequest, told: datetime | None) -> HttpResponse:
    name = settings.OIDC.name
    says = f"asked last at {told:%H:%M} UTC on {told:%-d %B %Y}" if told else "does not say when it asked (auth_time)"
    why = (
        f"You are logged in, but not anew: {name} {says}. Do this with a local user that may, or ask who runs {name} to "
        "let it ask anew and say when it did."
    )
    return render(request, "registration/oidc_refused.html", {"why": why, "heading": "Not logged in anew"}, status=403)


def _possible(request: HttpRequest) -> None:
    if settings.OIDC is None:
        raise Http404("No provider is configured.")


def _limited(request: HttpRequest) -> HttpResponse | None:
    if not limits.provider_limited(limits.origin_of(request, None)):
        return None
    return render(request, "registration/oidc_refused.html", {"why": TOO_MANY}, status=429)

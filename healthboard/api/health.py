"""For machines that watch healthboard: does the process live, is it ready, and the numbers for Prometheus."""

from __future__ import annotations

import hmac

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from healthboard import config, ready
from healthboard.api.metrics import registry


def _line(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(text + "\n", status=status, content_type="text/plain; charset=utf-8")


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. Asks nothing else, so that a database in trouble doesn't get every process killed."""
    return _line("ok")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 if it can do its work, else 503 with one line that says what is missing."""
    why = not_ready()
    return _line(why, 503) if why else _line("ready")


def not_ready() -> str:
    try:
        return ready.missing()
    except ready.Away as away:
        return str(away)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text for the bearer of a token of HEALTHBOARD_METRICS_TOKEN, which may list two while one is changed;
    without such a token nobody gets it."""
    kind, _, given = request.headers.get("Authorization", "").partition(" ")
    told = given.strip().encode("utf-8", "replace")
    fits = [hmac.compare_digest(told, one.encode()) for one in config.listed("HEALTHBOARD_METRICS_TOKEN")]
    if kind.lower() != "bearer" or not any(fits):
        answer = _line("send the bearer token of HEALTHBOARD_METRICS_TOKEN", 401)
        answer["WWW-Authenticate"] = "Bearer"
        return answer
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

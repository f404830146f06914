"""Each change that a known person was refused is on record with its reason, whatever part refused it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from healthboard.audit.record import record
from healthboard.people.actors import Actor

#: the same refusal of the same person is told once in so many seconds
ONCE_S = 60
SAFE = ("GET", "HEAD", "OPTIONS")


class OnRecord:
    """Middleware. What says why sets ``request.refusal``; see `pages.refused` and `api.errors`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.get_response(request)
        if request.method not in SAFE and answer.status_code == 403:
            keep(request, getattr(request, "refusal", "") or "the form's token is missing or wrong")
        return answer

    def process_exception(self, request: HttpRequest, error: Exception) -> None:
        if isinstance(error, PermissionDenied):
            request.refusal = str(error) or "not allowed"


def keep(request: HttpRequest, why: str) -> None:
    """One audit row for a refusal; none for strangers, who could fill the record."""
    user = _person(request)
    if user is None:
        return
    same = hashlib.sha256(f"{user.pk} {request.method} {request.path} {why}".encode()).hexdigest()
    if not cache.add(f"refused:{same}", 1, ONCE_S):
        return
    actor = Actor(name=user.get_username(), via="web", user=user, request_id=getattr(request, "request_id", ""))
    with transaction.atomic():
        text = f"{request.method} {request.path} by {actor.name} refused: {why}"
        record("request.refused", f"user:{user.pk}", text[:500], actor=actor, payload={"reason": why[:500]})


def _person(request: HttpRequest) -> Any:
    user = getattr(request, "auth", None) or getattr(request, "user", None)
    return user if getattr(user, "is_authenticated", False) and hasattr(user, "get_username") else None

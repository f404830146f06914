"""What every page's frame needs: the switch, what is blind, what waits; read once a request and only if shown.

A middleware hangs it on the request, so that the pages of the lower layers can ask for it without knowing this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from healthboard import clock, pages
from healthboard.approve import waits
from healthboard.approve.waits import Waits
from healthboard.cases import alarm
from healthboard.fleet import foreign
from healthboard.fleet.models import Source
from healthboard.fleet.sources import blind, listened_to
from healthboard.people import access
from healthboard.repairs import queries
from healthboard.repairs.models import Switch


@dataclass(frozen=True, slots=True)
class Frame:
    switch: Switch | None
    blind: list[Source]
    waits: Waits
    breakers: int
    alarms: list[str]  # broken invariants that nobody has acknowledged
    may_stop: bool  # this person may throw the stop switch

    @property
    def waiting(self) -> int:
        return self.waits.total

    @property
    def acting(self) -> bool:
        return self.switch is not None and self.switch.acting

    @property
    def stopped(self) -> bool:
        return self.switch is not None and self.switch.stopped


class Attach:
    """Middleware: `request.frame_version()` for `pages.live`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.frame_version = lambda: frame_version(request)
        return self.get_response(request)


def frame(request: HttpRequest) -> Frame:
    """Six small queries, once a request."""
    found = getattr(request, "_frame", None)
    if found is None:
        now, see = clock.now(), access.seeing(request.user)
        found = request._frame = Frame(
            switch=Switch.objects.first(),
            blind=[one for one in see(listened_to().select_related("account"), pool="") if blind(one, now)],
            waits=waits.count(see),
            breakers=queries.breakers(see).filter(released_at=None).count(),
            alarms=_alarms(see),
            may_stop=access.why_not(request.user, "stop") is None,
        )
    return found


def _alarms(see: foreign.See) -> list[str]:
    broken = alarm.unseen()
    return foreign.plain(see, broken) if broken else broken


def frame_version(request: HttpRequest) -> str:
    seen = frame(request)
    switch = seen.switch
    return pages.version(
        switch and [switch.acting, switch.stopped, switch.changed_at, switch.reason], [s.pk for s in seen.blind], seen.waits.mark,
        seen.breakers, seen.alarms, _looks(request),
    )  # fmt: skip


def _looks(request: HttpRequest) -> dict[str, Any]:
    """Theme and keys as the person set them, kept in cookies so that the first paint is right."""
    theme, keys = (request.COOKIES.get(f"{settings.COOKIE_PREFIX}{name}", "") for name in ("theme", "keys"))
    return {"theme": theme if theme in ("light", "dark") else "", "keys": keys != "off"}


def shell(request: HttpRequest) -> dict[str, Any]:
    return {
        "frame": SimpleLazyObject(lambda: frame(request)),
        "now": clock.now(),
        "look": _looks(request),
        "sandbox": settings.SANDBOX,
    }

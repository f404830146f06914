"""From a request to the person who acts, and the guards of views."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse

from healthboard import clock
from healthboard.people.access import RECENT_S, somewhere, why_not
from healthboard.people.actors import Actor
from healthboard.people.detour import log_in_first
from healthboard.refusals import NotAllowed

AUTH_AT = "auth_at"


def actor_of(request: HttpRequest, via: str = "web") -> Actor:
    """The person behind a request; an anonymous one acts as nobody and is refused everywhere."""
    user = request.user if request.user.is_authenticated else None
    return Actor(
        name=user.get_username() if user else "anonymous",
        via=via,
        user=user,
        request_id=getattr(request, "request_id", ""),
        recent=user is not None and recent(request),
    )


def stamp(request: HttpRequest, at: datetime | None = None) -> None:
    """Remember in the session that the person has shown who they are, now or at that time."""
    now = clock.now()
    request.session[AUTH_AT] = min(at or now, now).isoformat()


def recent(request: HttpRequest) -> bool:
    """True if the log-in is not older than 15 minutes."""
    session = getattr(request, "session", None)
    raw = session.get(AUTH_AT) if session is not None else None
    try:
        at = datetime.fromisoformat(raw)
        return 0 <= (clock.now() - at).total_seconds() <= RECENT_S
    except (TypeError, ValueError):  # never stamped, or stamped without a zone
        return False


def may(verb: str) -> Callable:
    """View decorator: log in, and hold a role that may do this somewhere; the place is checked by what the view calls."""

    def wrap(view: Callable) -> Callable:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return log_in_first(request)
            if not somewhere(request.user, verb):
                raise NotAllowed(why_not(request.user, verb) or "Not allowed.")
            return view(request, *args, **kwargs)

        return guarded

    return wrap

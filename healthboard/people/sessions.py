"""Log-ins that last: how long at most, how long without a click, which there are, and how they are ended.

A session is a row of the database, so that ending it counts at the next request. See docs/decisions/0090.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, logout
from django.contrib.sessions.models import Session
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.people.limits import address_of
from healthboard.people.passwords import MUST

BEGUN, SEEN, FROM = "begun_at", "seen_at", "from"
#: a click is written down at most so often, seconds
WRITTEN_S = 60.0
#: what a person may do whose password somebody else chose
_WITHOUT_CHOICE = ("/accounts/password/", "/accounts/logout/")


@dataclass(frozen=True, slots=True)
class Row:
    name: str  # tells it from others; the key itself is never shown
    begun: datetime | None
    seen: datetime | None
    address: str
    mine: bool  # the one that asks


def begin(request: HttpRequest) -> None:
    """A person has just shown who they are: a new key, and the times count from now."""
    request.session.cycle_key()
    now = clock.now().isoformat()
    request.session.update({BEGUN: now, SEEN: now, FROM: address_of(request)})


class Bounded:
    """Middleware, behind the one of the log-in: a session that is over by its times is ended here; one whose password
    somebody else chose leads to choosing one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and SESSION_KEY in request.session:
            if MUST in request.session and request.path not in _WITHOUT_CHOICE:
                return HttpResponseRedirect("/accounts/password/")
            if settings.SESSION_LONGEST or settings.SESSION_IDLE:
                _bound(request)
        return self.get_response(request)


def _bound(request: HttpRequest) -> None:
    if _over(request.session):
        logout(request)
    elif not _by_itself(request):
        _note(request.session)


def _over(session: Any) -> bool:
    """One without times is of an earlier release: it counts from now on."""
    now = clock.now()
    begun, seen = _at(session.get(BEGUN)) or now, _at(session.get(SEEN)) or now
    longest, idle = settings.SESSION_LONGEST, settings.SESSION_IDLE
    return bool((longest and (now - begun).total_seconds() > longest) or (idle and (now - seen).total_seconds() > idle))


def _by_itself(request: HttpRequest) -> bool:
    """A page that renews itself is nobody's click; but a wall is there to be looked at."""
    headers = request.headers
    if "HX-Request" not in headers or "X-Shown" not in headers or headers.get("HX-Trigger") == "filters":
        return False
    return not request.path.startswith("/wall/")


def _note(session: Any) -> None:
    now, seen = clock.now(), _at(session.get(SEEN))
    if seen is None or (now - seen).total_seconds() > WRITTEN_S:
        session.setdefault(BEGUN, now.isoformat())
        session[SEEN] = now.isoformat()


def of(user: Any, mine: str | None = None) -> list[Row]:
    """A person's sessions: the one of the key `mine`, which asks, then the newest first."""
    rows = [
        Row(_name(key), _at(data.get(BEGUN)), _at(data.get(SEEN)), str(data.get(FROM, "")), key == mine)
        for key, data in _kept(user)
    ]
    return sorted(rows, key=lambda row: (row.mine, row.begun is not None, str(row.begun)), reverse=True)


@transaction.atomic
def end(user: Any, *, actor: Actor, name: str | None = None, keep: str | None = None) -> int:
    """End a person's sessions: that of a name, or all but the one of the key `keep`. How many it were."""
    keys = [key for key, _ in _kept(user) if key != keep and name in (None, _name(key))]
    if keys:
        Session.objects.filter(session_key__in=keys).delete()
        text = f"{len(keys)} session{'s' if len(keys) > 1 else ''} of {user} ended"
        record("session.ended", f"user:{user.pk}", text, actor=actor)
    return len(keys)


def _kept(user: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Live sessions of a person; those from before their last password don't count any more, and are not theirs."""
    hashes = {user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()}
    for row in Session.objects.filter(expire_date__gt=clock.now()).iterator(500):
        data = row.get_decoded()
        if data.get(SESSION_KEY) == str(user.pk) and data.get(HASH_SESSION_KEY) in hashes:
            yield row.session_key, data


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _at(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else None

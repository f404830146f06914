"""Rate limits of failed log-ins, with a delay that grows, and without a way to lock a person out.

A browser that a person has logged in from before carries a signed mark, and is counted by itself: whatever strangers
guess, from wherever, it is let in. Everybody else is counted by name *and* address, by address over all names, and by
name over all addresses without that mark.
"""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.db import transaction
from django.http import HttpRequest

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.people.models import FailedLogin

#: the name under which log-ins by a provider that were not completed are counted
OIDC = "oidc provider"
WINDOW = timedelta(minutes=15)
PER_NAME = 10
PER_ADDRESS = 100
#: wrong passwords for one name from everywhere without a mark
PER_ACCOUNT = 30
#: log-ins at a provider that were begun here and not completed, from one address
PER_PROVIDER = 30
#: how long a wrong password counts towards the growing delay, and the longest delay
KEPT = timedelta(hours=24)
LONGEST = timedelta(hours=4)
MARK_DAYS = 90
_KNOWN = "known:"


def address_of(request: HttpRequest) -> str:
    """Where a request comes from; behind a proxy (aws mode) what the proxy itself appended last."""
    forwarded = "" if settings.SANDBOX else request.headers.get("X-Forwarded-For", "")
    return (forwarded.rsplit(",", 1)[-1].strip() or request.META.get("REMOTE_ADDR", ""))[:64]


def origin_of(request: HttpRequest, name: str) -> str:
    """What failed log-ins for a name are counted by: this browser where its mark is this person's, else the address."""
    try:
        raw = request.COOKIES.get(settings.KNOWN_COOKIE_NAME, "")
        told = signing.loads(raw, salt=_KNOWN, max_age=MARK_DAYS * 86400)
    except signing.BadSignature:
        return address_of(request)
    mine = isinstance(told, list) and len(told) == 2 and told[0] == _lower(name)
    return f"{_KNOWN}{told[1]}"[:64] if mine else address_of(request)


def remember(request: HttpRequest, response: Any, name: str) -> None:
    """Mark the browser of a person who has just logged in."""
    value = signing.dumps([_lower(name), secrets.token_urlsafe(16)], salt=_KNOWN)
    response.set_cookie(
        settings.KNOWN_COOKIE_NAME, value, max_age=MARK_DAYS * 86400, httponly=True, samesite="Strict",
        secure=settings.SESSION_COOKIE_SECURE, path="/",
    )  # fmt: skip


def limited(name: str, origin: str) -> bool:
    until = wait_until(name, origin)
    return until is not None and until > clock.now()


def wait_until(name: str, origin: str) -> datetime | None:
    """When the next try for this name from there is looked at; None where nothing stands against one now."""
    now, name = clock.now(), _lower(name)
    free = PER_PROVIDER if name == OIDC else PER_NAME
    own = _delay(FailedLogin.objects.filter(name=name, address=origin, at__gt=now - KEPT), free, WINDOW)
    if name == OIDC:  # nothing is guessed there, so nobody elsewhere needs to wait
        return own
    if origin.startswith(_KNOWN):
        return own
    from_here = FailedLogin.objects.filter(address=origin, at__gt=now - WINDOW).order_by("-at")
    oldest = from_here.values_list("at", flat=True)[PER_ADDRESS - 1 : PER_ADDRESS].first()
    strangers = FailedLogin.objects.filter(name=name, at__gt=now - KEPT).exclude(address__startswith=_KNOWN)
    everywhere = _delay(strangers, PER_ACCOUNT, timedelta(minutes=1))
    found = [until for until in (own, oldest and oldest + WINDOW, everywhere) if until]
    return max(found, default=None)


def _delay(rows: Any, free: int, first: timedelta) -> datetime | None:
    """After `free` wrong ones each further one doubles the delay, from `first` on."""
    count = rows.count()
    if count < free:
        return None
    last = rows.order_by("-at").values_list("at", flat=True).first()
    return last + min(first * 2 ** min(count - free, 16), LONGEST)


@transaction.atomic
def failed(name: str, origin: str) -> None:
    """Count one wrong password; forget those that no longer count."""
    now, name = clock.now(), _lower(name)
    FailedLogin.objects.filter(at__lte=now - KEPT).delete()
    FailedLogin.objects.create(name=name, address=origin, at=now)
    actor, about = Actor(name="anonymous", via="web"), f"login:{name[:80]}"
    if FailedLogin.objects.filter(name=name, address=origin).count() == PER_NAME:
        # one row when a limit is reached, not one per guess
        record("login.limited", about, f"{PER_NAME} wrong passwords for {name} from {origin}", actor=actor)
    strangers = FailedLogin.objects.filter(name=name).exclude(address__startswith=_KNOWN)
    if name != OIDC and not origin.startswith(_KNOWN) and strangers.count() == PER_ACCOUNT:
        record("login.limited", about, f"{PER_ACCOUNT} wrong passwords for {name} from many places", actor=actor)


def succeeded(name: str, origin: str) -> None:
    FailedLogin.objects.filter(name=_lower(name), address=origin).delete()


def _lower(name: str) -> str:
    return name.lower()[:150]

"""Rate limits of failed log-ins, with a delay that grows, and without a way to lock a person out.

A browser that a person has logged in from before carries a signed mark, and is counted by itself: whatever strangers
guess, from wherever, it is let in. Everybody else is counted by name *and* address, by address over all names, and by
name over all addresses without that mark. Log-ins at a provider are counted too, by mark or by address, but nothing is
guessed there, so that the wait does not grow.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import unicodedata
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import signing
from django.db import transaction
from django.http import HttpRequest

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.people.models import FailedLogin

log = logging.getLogger(__name__)
#: under which log-ins by a provider that were not completed are counted; in capitals, which no name that is kept has
PROVIDER = "PROVIDER"
WINDOW = timedelta(minutes=15)
PER_NAME = 10
PER_ADDRESS = 100
#: wrong passwords for one name from everywhere without a mark
PER_ACCOUNT = 30
#: log-ins at a provider that were begun here and not completed, from one browser with a mark, or from one address
PER_PROVIDER = 30
#: how long a wrong password counts towards the growing delay, and the longest delay
KEPT = timedelta(hours=24)
LONGEST = timedelta(hours=4)
MARK_DAYS = 90
LONGEST_NAME = 150
#: how an origin begins that is a marked browser; no IP address does
_KNOWN = "known:"


def address_of(request: HttpRequest) -> str:
    """The IP address that a request comes from; behind a proxy (aws mode) what the proxy itself appended last. Empty
    where the peer has none (a socket of the machine)."""
    forwarded = "" if settings.SANDBOX else request.headers.get("X-Forwarded-For", "")
    return _ip(forwarded.rsplit(",", 1)[-1]) or _ip(request.META.get("REMOTE_ADDR", ""))


def _ip(text: str) -> str:
    """The address in its usual form; empty for anything else, and for one with a zone, which may be any text."""
    try:
        found = ipaddress.ip_address(text.strip())
    except ValueError:
        return ""
    return "" if "%" in text else str(getattr(found, "ipv4_mapped", None) or found)


def line_of(address: str) -> str:
    """What one subscriber holds: of IPv6 not an address but a network of 64 bits, in which each may be used once."""
    return str(ipaddress.ip_network(f"{address}/64", strict=False)) if ":" in address else address


def origin_of(request: HttpRequest, name: str | None) -> str:
    """What failed log-ins for a name are counted by: this browser where its mark is this person's, else the address.
    None: a log-in at a provider, before which nobody knows whose it will be; anybody's mark counts."""
    try:
        raw = request.COOKIES.get(settings.KNOWN_COOKIE_NAME, "")
        told = signing.loads(raw, salt=_KNOWN, max_age=MARK_DAYS * 86400)
    except signing.BadSignature:
        return line_of(address_of(request))
    mine = isinstance(told, list) and len(told) == 2 and (name is None or told[0] == _lower(name))
    return f"{_KNOWN}{told[1]}"[:64] if mine else line_of(address_of(request))


def remember(request: HttpRequest, response: Any, name: str) -> None:
    """Mark the browser of a person who has just logged in."""
    value = signing.dumps([_lower(name), secrets.token_urlsafe(16)], salt=_KNOWN)
    response.set_cookie(
        settings.KNOWN_COOKIE_NAME, value, max_age=MARK_DAYS * 86400, httponly=True, samesite="Strict",
        secure=settings.SESSION_COOKIE_SECURE, path="/",
    )  # fmt: skip


def keep_mark(request: HttpRequest, response: Any, name: str) -> None:
    """As `remember`, where the browser has no mark yet: a provider's log-in takes nobody's away."""
    if not origin_of(request, None).startswith(_KNOWN):
        remember(request, response, name)


def limited(name: str, origin: str) -> bool:
    until = wait_until(name, origin)
    return until is not None and until > clock.now()


def provider_limited(origin: str) -> bool:
    """True while too many log-ins at a provider that began there were not completed."""
    rows = FailedLogin.objects.filter(name=PROVIDER, address=origin)
    return _over(rows, PER_PROVIDER) is not None


def wait_until(name: str, origin: str) -> datetime | None:
    """When the next try for this name from there is looked at; None where nothing stands against one now."""
    now, name = clock.now(), _lower(name)
    own = _delay(FailedLogin.objects.filter(name=name, address=origin, at__gt=now - KEPT), PER_NAME, WINDOW)
    if origin.startswith(_KNOWN):
        return own
    from_here = _over(FailedLogin.objects.filter(address=origin).exclude(name=PROVIDER), PER_ADDRESS)
    strangers = FailedLogin.objects.filter(name=name, at__gt=now - KEPT).exclude(address__startswith=_KNOWN)
    everywhere = _delay(strangers, PER_ACCOUNT, timedelta(minutes=1))
    found = [until for until in (own, from_here, everywhere) if until]
    return max(found, default=None)


def _over(rows: Any, most: int) -> datetime | None:
    """When there are fewer than `most` of them within a quarter of an hour again; None while there are."""
    recent = rows.filter(at__gt=clock.now() - WINDOW).order_by("-at").values_list("at", flat=True)
    oldest = recent[most - 1 : most].first()
    return oldest and oldest + WINDOW


def _delay(rows: Any, free: int, first: timedelta) -> datetime | None:
    """After `free` wrong ones each further one doubles the delay, from `first` on."""
    count = rows.count()
    if count < free:
        return None
    last = rows.order_by("-at").values_list("at", flat=True).first()
    return last + min(first * 2 ** min(count - free, 16), LONGEST)


@transaction.atomic
def failed(name: str, origin: str) -> None:
    """Count one wrong password; forget those that no longer count. A name that nobody has is not logged: it may be a
    password in the wrong field."""
    name = _lower(name)
    known = get_user_model().objects.filter(username__iexact=name).exists()
    log.warning("a wrong password for %s from %s", name if known else "a name that nobody has", origin)
    if _count(name, origin) == PER_NAME:
        # one row when a limit is reached, not one per guess
        _tell(f"login:{name[:80]}", f"{PER_NAME} wrong passwords for {name} from {origin}")
    strangers = FailedLogin.objects.filter(name=name).exclude(address__startswith=_KNOWN)
    if not origin.startswith(_KNOWN) and strangers.count() == PER_ACCOUNT:
        _tell(f"login:{name[:80]}", f"{PER_ACCOUNT} wrong passwords for {name} from many places")


@transaction.atomic
def provider_failed(origin: str) -> None:
    """Count one log-in at a provider that was not completed."""
    if _count(PROVIDER, origin) == PER_PROVIDER:
        _tell("login:oidc", f"{PER_PROVIDER} log-ins at the provider from {origin} were not completed")


def _count(name: str, origin: str) -> int:
    """Write one row; how many are kept of that name and origin, this one included."""
    now = clock.now()
    FailedLogin.objects.filter(at__lte=now - KEPT).delete()
    FailedLogin.objects.create(name=name, address=origin, at=now)
    return FailedLogin.objects.filter(name=name, address=origin).count()


def _tell(about: str, text: str) -> None:
    record("login.limited", about, text, actor=Actor(name="anonymous", via="web"))


def succeeded(name: str, origin: str) -> None:
    FailedLogin.objects.filter(name=_lower(name), address=origin).delete()


def provider_succeeded(origin: str) -> None:
    FailedLogin.objects.filter(name=PROVIDER, address=origin).delete()


def _lower(name: str) -> str:
    """The name as it is kept, and as the log-in form reads it: without spaces around it, and with each letter in its plain
    form, so that a name written otherwise is not another name. A NUL, which no user's name has, is left out: PostgreSQL
    refuses it. What is too long for a name is nobody's and stays as it is: normalising it would take long."""
    name = name.replace("\0", "").strip()
    plain = unicodedata.normalize("NFKC", name) if len(name) <= LONGEST_NAME else name
    return plain.lower()[:LONGEST_NAME]

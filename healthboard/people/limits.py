"""Rate limits of failed log-ins.

The limit counts per name *and* address, so that somebody who guesses elsewhere can't lock a person on call out; and
per address over all names, so that one address can't try many people.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.people.models import FailedLogin

WINDOW = timedelta(minutes=15)
PER_NAME = 10
PER_ADDRESS = 100


def address_of(request: HttpRequest) -> str:
    """Where a request comes from; behind a proxy (aws mode) what the proxy itself appended last."""
    forwarded = "" if settings.SANDBOX else request.headers.get("X-Forwarded-For", "")
    return (forwarded.rsplit(",", 1)[-1].strip() or request.META.get("REMOTE_ADDR", ""))[:64]


def limited(name: str, address: str) -> bool:
    rows = FailedLogin.objects.filter(address=address, at__gt=clock.now() - WINDOW)
    return rows.filter(name=name.lower()[:150]).count() >= PER_NAME or rows.count() >= PER_ADDRESS


@transaction.atomic
def failed(name: str, address: str) -> None:
    """Count one wrong password; forget those that no longer count."""
    now, name = clock.now(), name.lower()[:150]
    FailedLogin.objects.filter(at__lte=now - WINDOW).delete()
    FailedLogin.objects.create(name=name, address=address, at=now)
    if FailedLogin.objects.filter(name=name, address=address).count() == PER_NAME:
        # one row when the limit is reached, not one per guess
        actor = Actor(name="anonymous", via="web")
        record(
            "login.limited", f"login:{name[:80]}", f"{PER_NAME} wrong passwords for {name} from {address}", actor=actor
        )


def succeeded(name: str, address: str) -> None:
    FailedLogin.objects.filter(name=name.lower()[:150], address=address).delete()

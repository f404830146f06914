"""Notes that a tick came round: beat sent it, the broker carried it, a worker took it."""

from __future__ import annotations

from datetime import datetime

from healthboard import clock
from healthboard.fleet import itself
from healthboard.fleet.models import Pulse


def beat(name: str, *, at: datetime | None = None) -> None:
    """`at`: as of when the work looked at the world, where that matters; else now."""
    told = {"at": at or clock.now(), "ok": True}
    if not Pulse.objects.filter(name=name).update(**told):  # one statement, in all rounds but the first
        Pulse.objects.update_or_create(name=name, defaults=told)
    itself.remember()

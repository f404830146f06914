"""Notes that a tick came round: beat sent it, the broker carried it, a worker took it."""

from __future__ import annotations

from datetime import datetime

from healthboard import clock
from healthboard.fleet import itself
from healthboard.fleet.models import Pulse


def beat(name: str, *, at: datetime | None = None) -> None:
    """`at`: as of when the work looked at the world, where that matters; else now."""
    Pulse.objects.update_or_create(name=name, defaults={"at": at or clock.now(), "ok": True})
    itself.remember()

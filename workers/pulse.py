"""Notes that a tick came round: beat sent it, the broker carried it, a worker took it."""

from __future__ import annotations

from healthboard import clock
from healthboard.fleet.models import Pulse


def beat(name: str) -> None:
    Pulse.objects.update_or_create(name=name, defaults={"at": clock.now(), "ok": True})

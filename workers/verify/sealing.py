"""The audit chain's round: is the database as new as it should be, then seal, then keep the end outside of it."""

from __future__ import annotations

from typing import Any

from healthboard import clock
from healthboard.audit import chain, heads
from healthboard.fleet.models import Pulse
from healthboard.repairs import restored


def come_round() -> None:
    """Never raises for a file that cannot be written: the page and /metrics say so instead."""
    problem, logged = restored.look(), None
    chain.seal()
    if not problem:
        try:
            logged = heads.keep()
        except OSError as error:
            problem = f"the head cannot be kept outside the database: {error.filename}: {error.strerror}"
    end = chain.end()
    detail: dict[str, Any] = {
        "problem": problem,
        "position": end.position if end else 0,
        "hash": end.hash if end else "",
        "logged_at": logged.isoformat() if logged else "",
        "log": str(heads.log()),
    }
    Pulse.objects.update_or_create(name="audit", defaults={"at": clock.now(), "ok": not problem, "detail": detail})

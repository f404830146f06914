"""What a trial of each row does: `(conductor, flow, spec) -> {"broken": [sentences], "reached", "recovery"}`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

RUNNERS = {
    "points": "kills.record",
    "T1": "kills.run",
    "T2": "kills.run",
    "T3": "pauses.run",
    "T4": "broker.run",
    "T5 restart": "database.restart",
    "T5 read-only": "database.readonly",
    "T5 exhausted": "database.exhausted",
    "T5 restored": "restored.run",
    "T13": "races.run",
    "T14": "stops.run",
}


def runner(row: str) -> Callable[..., dict[str, Any]]:
    module, _, name = RUNNERS[row].partition(".")
    return getattr(importlib.import_module(f"tests.safety.rows.{module}"), name)

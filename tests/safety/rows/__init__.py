"""What a trial of each row does: `(conductor, flow, spec) -> {"broken": [sentences], "reached", "recovery"}`; of a row that
needs no worker process `(site, spec) -> ...`."""

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
    "T6": "crowd.run",
    "T7": "alone.aws_down",
    "T8": "alone.ambiguous",
    "T9": "alone.no_capacity",
    "T10": "alone.storm",
    "T11": "loops.run",
    "T12": "clocks.run",
    "T12 worker": "clocks.worker",
    "T13": "races.run",
    "T14": "stops.run",
    "T15": "alone.backlog",
    "T16": "forged.run",
    "T17": "fuzz.run",
    "T19": "alone.audit",
    "T21": "messages.run",
    "T22": "guards.run",
}


def runner(row: str) -> Callable[..., dict[str, Any]]:
    module, _, name = RUNNERS[row].partition(".")
    return getattr(importlib.import_module(f"tests.safety.rows.{module}"), name)

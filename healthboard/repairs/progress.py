"""A repair's steps as a page shows them: those taken with their calls, then those to come."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from healthboard.repairs.models import Repair
from healthboard.repairs.recipes import STEPS


def progress(repair: Repair) -> list[dict[str, Any]]:
    """Rows of {name, title, detail, state, note, started, ended, calls, minutes, changes}, in order."""
    taken = list(repair.steps.prefetch_related("calls"))
    rows = [
        _row(
            step.name,
            state=step.state,
            note=step.note,
            started=step.started_at,
            ended=step.ended_at,
            calls=list(step.calls.all()),
        )
        for step in taken
    ]
    if repair.closed_at is None and repair.state != "UNDOING":
        done = {step.name for step in taken}
        names = [step.get("name", "") for step in repair.plan.get("steps", [])]
        rows += [_row(name) for name in names if name not in done]
    return rows


def _row(name: str, *, state: str = "PLANNED", note: str = "", started: datetime | None = None,
         ended: datetime | None = None, calls: list[Any] | None = None) -> dict[str, Any]:  # fmt: skip
    words = STEPS.get(name)
    return {
        "name": name,
        "title": words.title if words else name.replace("_", " ").capitalize(),
        "detail": words.detail if words else "",
        "changes": bool(words and words.changes),
        "irreversible": bool(words and words.irreversible),
        "state": state,
        "note": note,
        "started": started,
        "ended": ended,
        "calls": calls or [],
    }

"""Every piece of evidence that a test left behind, decided again: to the word what was stored."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from healthboard.cases import replay
from healthboard.cases.models import Evidence


def differing(of_before: datetime | None = None) -> list[str]:
    """One line for each piece of evidence that is not decided as it was; what a factory made up is left out. What was
    stored `of_before` then, by an earlier release, is compared in all that it holds: this one may tell more."""
    found = []
    for row in Evidence.objects.exclude(inputs={}).exclude(inputs__has_key="purged").order_by("pk"):
        now, earlier = replay.again(row), of_before is not None and row.at <= of_before
        for name, stored, given in (("", row.assessment, now.assessment), ("policy: ", row.answer, now.answer)):
            given = _held(stored, given) if earlier else given
            keys = [key for key in {**stored, **given} if stored.get(key) != given.get(key)]
            found += [f"case {row.case_id}: {name}{key}: {stored.get(key)!r} → {given.get(key)!r}" for key in keys]
    return found


def _held(stored: Any, given: Any) -> Any:
    """Of `given`, at any depth, the fields that `stored` has too."""
    if isinstance(stored, dict) and isinstance(given, dict):
        return {name: _held(stored[name], value) for name, value in given.items() if name in stored}
    if isinstance(stored, list) and isinstance(given, list) and len(stored) == len(given):
        return [_held(old, new) for old, new in zip(stored, given, strict=True)]
    return given

"""Every piece of evidence that a test left behind, decided again: to the word what was stored."""

from __future__ import annotations

from healthboard.cases import replay
from healthboard.cases.models import Evidence


def differing() -> list[str]:
    """One line for each piece of evidence that is not decided as it was; what a factory made up is left out."""
    found = []
    for row in Evidence.objects.exclude(inputs={}).exclude(inputs__has_key="purged").order_by("pk"):
        now = replay.again(row)
        for name, stored, given in (("", row.assessment, now.assessment), ("policy: ", row.answer, now.answer)):
            keys = [key for key in {**stored, **given} if stored.get(key) != given.get(key)]
            found += [f"case {row.case_id}: {name}{key}: {stored.get(key)!r} → {given.get(key)!r}" for key in keys]
    return found

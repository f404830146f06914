"""Who says what about a code: each vendor's word beside ours, and whether they disagree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from healthboard.diagnosis import catalogue

MOST = 6


def rows(codes: Iterable[str], most: int = MOST) -> list[dict[str, Any]]:
    """Per code, each once: its title, (who, what they say) with healthboard last, and our word by itself."""
    found = []
    for code in list(dict.fromkeys(codes))[:most]:
        entry = catalogue.get(code)
        found.append(
            {
                "code": code,
                "title": entry.title,
                "said": catalogue.who_says(code),
                "apart": entry.disagreement,
                "verdict": entry.verdict,
                "action": entry.action,
                "why": entry.why,
            }
        )
    return found

"""Classes of fault points: what lies between two lasting effects leaves the same behind, wherever the worker dies."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

#: flow -> class -> its points (name, ordinal)
Classes = dict[str, dict[str, list[list[Any]]]]
IDLE = "idle"


def read(path: Path) -> list[tuple[str, int, bool]]:
    """The points of a recording, in order: (name, ordinal, lasting)."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [(name, int(ordinal), lasting == "1") for name, ordinal, lasting in rows]


def classes(points: list[tuple[str, int, bool]]) -> dict[str, list[tuple[str, int]]]:
    """Lasting effect and step -> the points reached between that effect and the next, in order."""
    members: dict[str, list[tuple[str, int]]] = defaultdict(list)
    last = IDLE
    for name, ordinal, lasting in points:
        if lasting:
            last = name
        step, last_step = name.split("|", 1)[0], last.split("|", 1)[0]
        members[last if step in ("", last_step) else f"{last} in {step}"].append((name, ordinal))
    return dict(members)


def member(points: list[list[Any]], key: str, seed: int) -> tuple[str, int]:
    """Another member of the class for another seed; seed 0 dies directly after the effect."""
    if seed == 0:
        return tuple(points[0])
    if seed == 1:
        return tuple(points[-1])
    return tuple(random.Random(f"{key}/{seed}").choice(points))

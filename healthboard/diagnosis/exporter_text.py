"""Prometheus text format, read fast: an exporter's series hardly change, so each series' labels are parsed once.

Equal to prometheus_client's parser on what that one accepts; a line that it would refuse is skipped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

#: what is kept of series seen before, in series and in characters: a node may send new ones for ever
MAX_SERIES, MAX_KEPT = 200_000, 64_000_000
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(,|$)', re.DOTALL)
_ESCAPE = re.compile(r'\\(\\|"|n)')

Labels = dict[str, str]


class Sample(NamedTuple):
    name: str
    labels: Labels
    value: float


#: series as written -> (name, labels); None for what is no series
_series: dict[str, tuple[str, Labels] | None] = {}
_kept = 0


def parse_labels(block: str) -> Labels | None:
    """The labels between the braces; None if they are malformed."""
    labels: Labels = {}
    pos = 0
    block = block.strip()
    while pos < len(block):
        match = _LABEL.match(block, pos)
        if not match:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], match[2])
        pos = match.end()
    return labels


def _read_series(text: str) -> tuple[str, Labels] | None:
    name, brace, rest = text.partition("{")
    name = name.strip()
    if not _NAME.fullmatch(name):
        return None
    labels = parse_labels(rest[: rest.rfind("}")]) if brace else {}
    return None if labels is None else (name, labels)


@lru_cache(maxsize=4096)
def _number(text: str) -> float | None:
    """A value of the format. Python's own extras (underscores, other digits) are no numbers here."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def samples(text: str) -> Iterator[Sample]:
    """Samples in their order; comments, blank and malformed lines are skipped."""
    global _kept
    known = _series
    if len(known) > MAX_SERIES or _kept > MAX_KEPT:
        known.clear()
        _kept = 0
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        cut = line.rfind("}") + 1
        if cut:
            series, rest = line[:cut], line[cut:]
        else:
            parts = line.split(None, 1)
            if len(parts) != 2:
                continue
            series, rest = parts
        try:
            found = known[series]
        except KeyError:
            found = known[series] = _read_series(series)
            _kept += len(series)
        if found is None:
            continue
        rest = rest.strip()
        value = _number(rest)
        if value is None:
            words = rest.split()
            value = _number(words[0]) if len(words) == 2 and _number(words[1]) is not None else None
            if value is None:
                continue
        yield Sample(found[0], found[1], value)

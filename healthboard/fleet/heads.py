"""Channels, and what a round of one told: its digest, its rhythm, and values that any database takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from healthboard import clock
from healthboard.diagnosis.signals import Reading

#: channel -> seconds between its rounds at speed 1
CHANNELS = {"node": 15.0, "local": 15.0, "dcgm": 30.0, "ec2": 60.0, "ecs": 60.0}
#: the shortest silence that is a gap: at high speed a busy machine would else see gaps everywhere
LEAST_GAP = timedelta(seconds=30)
#: length of a digest
DIGEST = 40
#: the end of a digest that was told once; the first confirming round takes it off
FRESH = "+"
#: parts of a reading that move without meaning anything; an interval keeps them as they were when it began
VOLATILE = frozenset({"last_updated", "version", "celsius", "booted_at", "running"})


def interval(channel: str) -> timedelta:
    """Time between two rounds of the channel."""
    return clock.scaled(CHANNELS.get(channel, 60.0))


def gap_after(channel: str) -> timedelta:
    """A channel that was silent for longer than this may have missed something: three rounds."""
    return max(3 * interval(channel), LEAST_GAP)


def steady(attrs: Any) -> dict[str, Any]:
    """The parts of a reading's attributes whose change is a change of the reading."""
    return {k: v for k, v in dict(attrs).items() if k not in VOLATILE}


def digest_of(readings: Iterable[Reading], extra: Any = None) -> str:
    """40 hex digits over name, source, GPU, value and steady attributes of a whole round, in any order."""
    rows = sorted(canonical([r.source, r.name, r.gpu or "", r.value, steady(r.attrs)]) for r in readings)
    return hashlib.blake2b(canonical([rows, extra]).encode(), digest_size=20).hexdigest()


#: made once: `json.dumps` with options makes one for each call, of which a report needs dozens
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def canonical(value: Any) -> str:
    """The one JSON text of a cleaned value. Most need no cleaning: what would is no JSON, stands in it as an escape, or is
    a key that is no text, which would be sorted as what it is."""
    if _keyed_by_text(value):
        try:
            out = _encode(value)
        except (TypeError, ValueError):
            out = "\\u"
        if "\\u" not in out:
            return out
    return _encode(clean(value))


def _keyed_by_text(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str for key in value) and all(_keyed_by_text(part) for part in value.values())
    return all(map(_keyed_by_text, value)) if isinstance(value, list | tuple) else True


def clean(value: Any) -> Any:
    """JSON that PostgreSQL takes: no NUL, no lone surrogate, no NaN; tuples as lists, times as ISO text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict) or hasattr(value, "items"):
        return {text(str(k)): clean(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((clean(v) for v in value), key=str)
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return text(str(value))


def text(value: Any, limit: int | None = None) -> str:
    """Text that any database takes, at most `limit` characters."""
    out = str(value or "")
    if "\x00" in out or not out.isascii():
        out = out.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return out[:limit]

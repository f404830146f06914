"""What a parser hands back, and the small tools that all parsers share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from healthboard.diagnosis.signals import CHECK_ORDER, CheckStatus, Event, Reading

#: Where text carries no wall time, events are placed from here on, in the order of their lines. Such an event has
#: `attrs["undated"]`, and its finding shows no time.
UNDATED = datetime(2000, 1, 1, tzinfo=UTC)
MAX_IGNORED = 50
#: What a line says stands in its beginning. More is never searched: whoever writes the text also chooses what it costs.
MAX_LINE = 4_096
_EXAMPLE = 160


@dataclass(frozen=True, slots=True)
class Ignored:
    """Lines that were read and deliberately not taken as evidence."""

    reason: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """Events and readings of one input. `known` counts the lines or items that belonged to the format."""

    events: tuple[Event, ...] = ()
    readings: tuple[Reading, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    known: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Parsed) -> Parsed:
        return Parsed(
            self.events + other.events,
            self.readings + other.readings,
            self.ignored + other.ignored,
            self.known + other.known,
            self.notes + other.notes,
        )


@dataclass(slots=True)
class IgnoredCounter:
    """Counts ignored lines by reason in bounded memory: a log of a million lines gives a few rows."""

    rows: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, reason: str, example: str, count: int = 1) -> None:
        row = self.rows.get(reason)
        if row is not None:
            row[0] += count
        elif len(self.rows) < MAX_IGNORED:
            self.rows[reason] = [count, example.strip()[:_EXAMPLE]]

    def result(self) -> tuple[Ignored, ...]:
        return tuple(Ignored(reason, n, example) for reason, (n, example) in self.rows.items())


def lines_of(text: str, ignored: IgnoredCounter) -> list[str]:
    """The lines of a text, each cut to what is searched of it; what was cut off is counted as ignored."""
    rows = text.splitlines()
    for n, line in enumerate(rows):
        if len(line) > MAX_LINE:
            rows[n] = cut(line, ignored)
    return rows


def cut(line: str, ignored: IgnoredCounter) -> str:
    """The beginning of a line, as far as it is searched."""
    if len(line) <= MAX_LINE:
        return line
    ignored.add(f"what stands beyond the first {MAX_LINE:,} characters of a line", line)
    return line[:MAX_LINE]


def at_line(number: int) -> datetime:
    """The stand-in time of an undated line."""
    return UNDATED + timedelta(microseconds=number)


def parse_time(text: Any) -> datetime | None:
    """An aware UTC datetime of an ISO 8601 text or a datetime, None for anything else; no zone means UTC."""
    if isinstance(text, str):
        try:
            text = datetime.fromisoformat(text.strip().replace(",", "."))
        except ValueError:
            return None
    if not isinstance(text, datetime):
        return None
    try:
        return text.replace(tzinfo=UTC) if text.tzinfo is None else text.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def number(value: Any) -> float | int | None:
    """`value` if it is a plain finite number, else None. True and False are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value == value and abs(value) != float("inf") else None


def worst(statuses: Iterable[CheckStatus]) -> CheckStatus:
    found = set(statuses)
    return next((s for s in CHECK_ORDER if s in found), CheckStatus.INSUFFICIENT_DATA)


def check_status(text: Any) -> CheckStatus:
    """ECS's or EC2's status word as one of ours; an unknown or absent word is INSUFFICIENT_DATA, never OK."""
    word = str(text).strip().upper().replace("-", "_") if text is not None else ""
    aliases = {"FAILED": "IMPAIRED", "PASSED": "OK", "HEALTHY": "OK", "UNHEALTHY": "IMPAIRED"}
    try:
        return CheckStatus(aliases.get(word, word))
    except ValueError:
        return CheckStatus.INSUFFICIENT_DATA

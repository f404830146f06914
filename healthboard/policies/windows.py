"""When repairs may begin: weekly maintenance windows and dated blackouts, by the wall clock of a named time zone. Pure.

A window is ``Mon-Fri 22:00-06:00 Europe/Berlin``, a blackout ``2026-12-20 00:00 to 2027-01-02 24:00 Europe/Berlin:
year-end freeze``. Of several windows one must be open. What several policies say together is a list of such lists, one
window of each of which must be open. An hour that a change of the clock skips is not waited for, and of one that comes
twice the first counts; a blackout lasts as long as either reading of its ends says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from healthboard.notices.quiet import zones

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: so far ahead an opening is looked for
AHEAD = timedelta(days=400)
MOST_WINDOWS, MOST_BLACKOUTS, LONGEST_LINE = 20, 50, 200
LONGEST_BLACKOUT = timedelta(days=366)
WINDOW_LIKE = "Mon-Fri 22:00-06:00 Europe/Berlin"
BLACKOUT_LIKE = "2026-12-20 to 2027-01-02 Europe/Berlin: year-end freeze"

_DAY = timedelta(days=1)
_WINDOW = re.compile(r"^(?:([A-Za-z,-]+)\s+)?(\d\d?:\d\d)\s*-\s*(\d\d?:\d\d)(?:\s+(\S+))?$", re.ASCII)
_END = r"(\d{4}-\d\d-\d\d)(?:\s+(\d\d?:\d\d))?"
_BLACKOUT = re.compile(rf"^{_END}\s+to\s+{_END}(?:\s+([^\s:]+))?\s*(?::\s*(.*))?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    days: tuple[int, ...]  # on which it opens; 0 is Monday
    starts: int  # minutes after midnight
    ends: int  # the same; not later than `starts`: on the next day
    zone: str

    def __str__(self) -> str:
        return f"{_days(self.days)} {_clock(self.starts)}-{_clock(self.ends)} {self.zone}"

    def opening(self, day: date) -> tuple[datetime, datetime] | None:
        """From and until when (UTC) it is open that began on this day there; None where it is not."""
        if day.weekday() not in self.days:
            return None
        last = day if self.ends > self.starts else day + _DAY
        begin, end = _first(day, self.starts, self.zone), _first(last, self.ends, self.zone)
        return (begin, end) if begin < end else None

    def is_open(self, at: datetime) -> bool:
        there = at.astimezone(ZoneInfo(self.zone)).date()
        spans = (self.opening(there - _DAY * back) for back in (0, 1, 2))
        return any(span is not None and span[0] <= at < span[1] for span in spans)

    def opens(self, after: datetime) -> datetime:
        """When it opens next."""
        there = after.astimezone(ZoneInfo(self.zone)).date()
        spans = (self.opening(there + _DAY * ahead) for ahead in range(-1, 60))
        return next((span[0] for span in spans if span is not None and span[0] > after), after + AHEAD)


@dataclass(frozen=True, slots=True)
class Blackout:
    starts: datetime  # without a zone: the wall clock there
    ends: datetime
    zone: str
    reason: str = ""

    def __str__(self) -> str:
        # the end of a day is 24:00 of that day, as people mean it
        end = self.ends - _DAY if self.ends.time() == time() else self.ends
        clock = "24:00" if self.ends.time() == time() else f"{end:%H:%M}"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.starts:%Y-%m-%d %H:%M} to {end:%Y-%m-%d} {clock} {self.zone}{why}"

    @property
    def span(self) -> tuple[datetime, datetime]:
        """UTC; where a change of the clock leaves two readings, the longer one."""
        zone = ZoneInfo(self.zone)
        begin, end = (
            [at.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)] for at in (self.starts, self.ends)
        )
        return min(begin), max(end)


@dataclass(frozen=True, slots=True)
class Closed:
    why: str  # begins a sentence
    opens: datetime | None  # None: not within `AHEAD`


def closed(values: Mapping[str, Any], now: datetime) -> Closed | None:
    """Why nothing may begin now by these resolved settings, and when it may; None where it may."""
    sets = [[parse_window(text) for text in clause] for clause in clauses(values.get("windows"))]
    blacked = [parse_blackout(text) for text in values.get("blackouts") or ()]
    held = [b for b in blacked if b.span[0] <= now < b.span[1]]
    shut = [clause for clause in sets if not any(w.is_open(now) for w in clause)]
    if not held and not shut:
        return None
    if held:
        why = "In a blackout (" + "; ".join(sorted(map(str, held))) + ")"
    else:
        why = "Outside the maintenance window (" + "; and ".join(_either(map(str, clause)) for clause in shut) + ")"
    opens = _next(sets, blacked, now)
    then = f"; the next opening is {opens:%Y-%m-%d %H:%M} UTC" if opens else "; it does not open within a year"
    return Closed(why + then, opens)


def clauses(value: Sequence[Any] | None) -> list[list[str]]:
    """A value of the setting as lists of windows, of each of which one must be open; none: any time."""
    if not value:
        return []
    return [list(clause) for clause in value] if isinstance(value[0], list | tuple) else [list(value)]


def together(values: Sequence[Sequence[Any]]) -> list[Any]:
    """Open only where all are: a value of the setting again. Independent of their order."""
    found = {tuple(sorted(set(clause))) for value in values for clause in clauses(value)}
    least = sorted(c for c in found if not any(set(other) < set(c) for other in found))
    return [list(clause) for clause in least] if len(least) > 1 else [*(least[0] if least else ())]


def show(value: Sequence[Any]) -> str:
    return "; and ".join(_either(clause) for clause in clauses(value)) or "at any time"


def when(values: Mapping[str, Any]) -> str:
    """Both settings in words: ``only within …, but not within …``; empty where neither says anything."""
    within = f"only within {show(values['windows'])}" if values.get("windows") else ""
    without = f"not within {'; '.join(values['blackouts'])}" if values.get("blackouts") else ""
    return ", but ".join(filter(None, (within or (without and "at any time"), without)))


def parse_window(text: str) -> Window:
    """Raises ValueError with a sentence."""
    said = _WINDOW.match(_line(text))
    if not said:
        raise ValueError(f"“{_short(text)}” is not a window; write it as in {WINDOW_LIKE}.")
    days, starts, ends, zone = said.groups()
    begin, end = _minutes(starts, most=1439), _minutes(ends, most=1440)
    if begin == end:
        raise ValueError(f"“{_short(text)}”: it ends when it starts; a whole day is 00:00-24:00.")
    return Window(_read_days(days, text), begin, end or 1440, _zone(zone, text))


def parse_blackout(text: str) -> Blackout:
    """Raises ValueError with a sentence. A day without a clock time is the whole day."""
    said = _BLACKOUT.match(_line(text))
    if not said:
        raise ValueError(f"“{_short(text)}” is not a blackout; write it as in {BLACKOUT_LIKE}.")
    from_day, from_clock, to_day, to_clock, zone, reason = said.groups()
    try:
        begin = _at(from_day, _minutes(from_clock or "0:00", most=1439))
        end = _at(to_day, _minutes(to_clock or "24:00", most=1440))
    except OverflowError:
        raise ValueError(f"“{_short(text)}”: there is no such day.") from None
    if not begin < end:
        raise ValueError(f"“{_short(text)}” ends before it starts.")
    if end - begin > LONGEST_BLACKOUT or not 2000 <= begin.year <= 2100:
        raise ValueError(f"“{_short(text)}”: a blackout lasts at most a year, in the years 2000 to 2100.")
    return Blackout(begin, end, _zone(zone, text), " ".join((reason or "").split()))


def _next(sets: Sequence[Sequence[Window]], blacked: Sequence[Blackout], now: datetime) -> datetime | None:
    at, spans = now, [b.span for b in blacked]
    while at < now + AHEAD:
        later = [end for begin, end in spans if begin <= at < end]
        for clause in sets:
            if not any(w.is_open(at) for w in clause):
                later.append(min(w.opens(at) for w in clause))
        if not later:
            return at
        at = max(later)
    return None


@lru_cache(4096)
def _first(day: date, minutes: int, zone: str) -> datetime:
    """The first moment at which the wall clock there shows this time or a later one (UTC)."""
    wall, there = _at(day.isoformat(), minutes), ZoneInfo(zone)
    before, after = (wall.replace(tzinfo=there, fold=fold).astimezone(UTC) for fold in (0, 1))
    if before.astimezone(there).replace(tzinfo=None) == wall:
        return before
    low, high = min(before, after), max(before, after)  # a skipped hour: the moment of the change lies between them
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        if middle.astimezone(there).replace(tzinfo=None) >= wall:
            high = middle
        else:
            low = middle
    return high.replace(microsecond=0)


def _at(day: str, minutes: int) -> datetime:
    return datetime.combine(date.fromisoformat(day), time()) + timedelta(minutes=minutes)


def _line(text: str) -> str:
    if not isinstance(text, str) or len(text) > LONGEST_LINE or not text.isprintable():
        raise ValueError(f"A window or blackout is one line of at most {LONGEST_LINE} characters.")
    return " ".join(text.replace("–", "-").split())


def _short(text: str) -> str:
    return text.strip()[:80]


def _minutes(clock: str, *, most: int) -> int:
    hours, minutes = map(int, clock.split(":"))
    if minutes > 59 or hours * 60 + minutes > most:
        raise ValueError(f"There is no {clock} on a clock; write from 00:00 to 24:00.")
    return hours * 60 + minutes


def _read_days(text: str | None, line: str) -> tuple[int, ...]:
    if text is None or text.lower() == "daily":
        return tuple(range(7))
    found: set[int] = set()
    for part in text.split(","):
        ends = [name.title()[:3] for name in part.split("-")]
        if not 1 <= len(ends) <= 2 or any(name not in DAYS for name in ends):
            raise ValueError(f"“{_short(line)}”: {part} is no day; write Mon, Mon-Fri, Sat,Sun or daily.")
        first, last = DAYS.index(ends[0]), DAYS.index(ends[-1])
        found |= {day % 7 for day in range(first, last + 1 if last >= first else last + 8)}
    return tuple(sorted(found))


def _zone(name: str | None, line: str) -> str:
    if not name:
        raise ValueError(f"“{_short(line)}” names no time zone; end it with one, such as Europe/Berlin or UTC.")
    if name not in zones():
        raise ValueError(f"There is no time zone {_short(name)}; write one such as Europe/Berlin or UTC.")
    return name


def _days(days: tuple[int, ...]) -> str:
    if len(days) == 7:
        return "daily"
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(DAYS[r[0]] if len(r) == 1 else f"{DAYS[r[0]]}-{DAYS[r[-1]]}" for r in runs)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _either(texts: Any) -> str:
    return " or ".join(texts)

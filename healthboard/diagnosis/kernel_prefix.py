"""Where a driver message begins in a log line, when it was written, and whether the kernel wrote it.

A line may come from dmesg (with or without human time or decoded facility), journald, syslog, /dev/kmsg or a copy of
any of them. The message counts only where nothing but such a prefix stands before it: process names are chosen by
tenants, and other programs quote kernel lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from healthboard.diagnosis.parsed import UNDATED, parse_time

#: The first words of every message that is read; the earliest one in a line is the message.
START = re.compile(
    r"NVRM: |nvidia-nvswitch\d*: |nvidia-nvlink: |pcieport [0-9a-fA-F]{4}:|nvidia [0-9a-fA-F]{4}:|pcieport:|"
    r"AER: |PCIe Bus Error: |S?Xid \(|Linux version \d|Command line: BOOT_IMAGE|callbacks suppressed"
)


#: A line without any of these is none of ours.
HINTS = (
    "NVRM", "Xid", "nvidia", "AER", "PCIe", "Linux ver", "BOOT_IMAGE", "-- ", "kmsg", "fallen", "missed ", "dmesg:",
)  # fmt: skip


def lines_of_interest(text: str) -> Iterator[tuple[int, str]]:
    """(number from 0, line) of the lines that hold a hint. Nearly all lines of a log cost one search in C and no more."""
    spans: set[tuple[int, int]] = set()
    size = len(text)
    for hint in HINTS:
        pos = text.find(hint)
        while pos >= 0:
            end = text.find("\n", pos)
            end = size if end < 0 else end
            spans.add((text.rfind("\n", 0, pos) + 1, end))
            pos = text.find(hint, end)
    number = before = 0
    for start, end in sorted(spans):
        number += text.count("\n", before, start)
        before = start
        yield number, text[start:end]


_KMSG = re.compile(r"(\d{1,6}),(\d+),(\d+),[^;]{0,80};\s*")
_PRIORITY = re.compile(r"<(\d{1,4})>\s*")
_BRACKET = re.compile(r"\[([^\]]{0,60})\]\s*")
_DECODED = re.compile(r"([a-z0-9]{3,9})\s*:\s*(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*")
_ISO = re.compile(
    r"(?:[A-Z][a-z]{2} )?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)(?: [A-Z]{3,4}\b)?\s*"
)
#: seconds or milliseconds of the epoch, as journalctl and CloudWatch write them
_EPOCH = re.compile(r"(\d{10})(?:[.,]\d{1,9}|\d{3})?\s+")
#: priority, version, time, host, program, process, message id, structured data
_RFC_5424 = re.compile(r"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\S{8,24}|-) \S+ (\S+) \S+ \S+ (?:-|\[[^\]]{0,200}\]) ?")
#: log group and stream in front of CloudWatch's own time
_GROUP = re.compile(r"/\S{1,200}\s+\S{1,200}\s+(?=\d{4}-\d\d-\d\dT)")
_SYSLOG = re.compile(r"(?:\S{2,10}\s+)?(\S{2,6})\s+(\d{1,2})\s+(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(?:\s+\d{4})?\s+")
_KERNEL_TAG = re.compile(r"(?:[\w.:-]+\s+)?kernel(?:\[\d+\])?:\s*")
_TAG = re.compile(r"(?:[\w.:-]+\s+)?[\w./@-]+(?:\[\d+\])?:\s*")
_REPEATED = re.compile(r"message repeated (\d+) times: \[\s*")
_FILE = re.compile(r"[\w./-]*(?:messages|syslog|kern\.log|dmesg|journal)[\w.-]*:(?:\d+[:-])?\s*")
#: a container's log driver, or compose: a record of some program
_STREAM = re.compile(r"(?:stdout|stderr)(?: [FP])?:?\s+|[\w.-]+\s+\|\s+")
_FIELD = re.compile(r"MESSAGE=")
_QUOTE = re.compile(r"[>|*#-]\s+|\s+")
_MONTHS = {
    m: i + 1 for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"])
}


@dataclass(frozen=True, slots=True)
class Origin:
    """`writer` is ``kernel``, ``user`` (a whole record of some program) or ``quoted`` (inside another message)."""

    writer: str
    at: datetime | None = None
    dated: bool = False
    seq: int | None = None
    times: int = 1
    uptime: float | None = None


def _bracket_time(text: str) -> tuple[datetime | None, bool, float | None]:
    text = text.strip()
    try:
        uptime = float(text)
        if 0 <= uptime < 1e10:
            return UNDATED + timedelta(seconds=uptime), False, uptime
    except ValueError:
        pass
    words = text.split()
    if len(words) == 5 and words[4].isdigit():
        try:
            month = _MONTHS.get(words[1].lower()[:3])
            hour, minute, second = (int(part) for part in words[3].split(":"))
            when = datetime(int(words[4]), month or 0, int(words[2]), hour, minute, second, tzinfo=UTC)
            return when, True, None
        except (ValueError, OverflowError):
            pass
    when = parse_time(text)
    return when, when is not None, None


def _syslog_time(match: re.Match[str]) -> datetime | None:
    # no year in this form, and the month may be in any language: good for order and distance only
    try:
        month = _MONTHS.get(match[1].lower()[:3], 1)
        day, hour, minute, second = (int(match[i]) for i in range(2, 6))
        return datetime(UNDATED.year, month, day, hour, minute, second, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def read_prefix(prefix: str) -> Origin:
    """Read all that stands before the message; what no rule explains makes the message a quotation."""
    at: datetime | None = None
    dated = False
    uptime: float | None = None
    seq: int | None = None
    times = 1
    writer = "kernel"
    timed = dating = False
    pos, end = 0, len(prefix)
    for _ in range(12):
        if pos >= end:
            break
        if m := _QUOTE.match(prefix, pos):
            pass
        elif m := _BRACKET.match(prefix, pos):
            when, is_dated, up = _bracket_time(m[1])
            if when is not None and (at is None or is_dated):
                at, dated = when, is_dated
            uptime = up if up is not None else uptime
            timed = True
        elif m := _KMSG.match(prefix, pos):
            writer = "kernel" if int(m[1]) >> 3 == 0 else "user"
            seq, at, uptime = int(m[2]), UNDATED + timedelta(microseconds=min(int(m[3]), 10**15)), int(m[3]) / 1e6
            timed = True
        elif m := _RFC_5424.match(prefix, pos):
            writer = "kernel" if int(m[1]) >> 3 == 0 and m[3] == "kernel" else "user"
            at, timed = parse_time(m[2]), True
            dated = at is not None
        elif m := _PRIORITY.match(prefix, pos):
            writer = "kernel" if int(m[1]) >> 3 == 0 else "user"
        elif m := _DECODED.match(prefix, pos):
            writer = "kernel" if m[1] == "kern" else "user"
        elif m := _ISO.match(prefix, pos):
            when = parse_time(m[1])
            if when is not None:
                at, dated = when, True
            timed = True
        elif not dated and (m := _EPOCH.match(prefix, pos)):
            at, dated, timed = datetime.fromtimestamp(int(m[1]), UTC), True, True
        elif (not timed or dated) and not dating and (m := _SYSLOG.match(prefix, pos)):
            # a log service may have put its own time in front
            if at is None:
                at = _syslog_time(m)
            timed = dating = True
        elif m := _REPEATED.match(prefix, pos):
            times = max(1, min(int(m[1]), 10**7))
        elif (
            (m := _KERNEL_TAG.match(prefix, pos))
            or (not timed and (m := _FILE.match(prefix, pos)))
            or (pos == 0 and (m := _GROUP.match(prefix)))
            or (m := _FIELD.match(prefix, pos))
        ):
            pass
        elif (m := _STREAM.match(prefix, pos)) or (timed and (m := _TAG.fullmatch(prefix, pos))):
            writer = "user"
        else:
            return Origin("quoted", at, dated, seq, times, uptime)
        pos = m.end()
    return Origin(writer if pos >= end else "quoted", at, dated, seq, times, uptime)

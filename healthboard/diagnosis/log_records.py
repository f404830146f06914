"""Log lines that come wrapped in JSON: journald's export, CloudWatch's answers, container log drivers, log shippers.

The wrapper tells who wrote the record, where it tells it at all. A line that is wrapped without that, and without a
prefix of its own, may be any program's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from healthboard.diagnosis.kernel_prefix import START, read_prefix
from healthboard.diagnosis.parsed import parse_time

_TEXTS = ("MESSAGE", "message", "log")
_WRITERS = ("SYSLOG_IDENTIFIER", "syslog_identifier", "ident", "appname", "app_name", "program", "process")
_FACILITIES = ("SYSLOG_FACILITY", "syslog_facility", "facility")
_TIMES = ("timestamp", "@timestamp", "time", "date")
#: A line that is several, or coloured.
BROKEN = re.compile(r"\x1b|\\x0a|\n")
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_DEPTH = 3
MAX_ANSWER = 50_000_000


class Record(NamedTuple):
    """`facility` is 0 for the kernel, 1 for a program, None where only the text's own prefix can tell."""

    text: str
    at: datetime | None
    facility: int | None


def unwrap(line: str) -> Record | None:
    """The innermost message of a JSON line; None if the line wraps none."""
    found: Record | None = None
    for _ in range(_DEPTH):
        record = _object(found.text if found else line)
        key = next((k for k in _TEXTS if isinstance(record.get(k), str)), None) if record else None
        if record is None or key is None:
            break
        # who wrote the outer record wrote the inner one as well
        facility = found.facility if found and found.facility else _facility(record)
        found = Record(record[key].rstrip("\r\n"), _time(record) or (found.at if found else None), facility)
    if found and found.facility is None and START.match(found.text.lstrip()):
        return found._replace(facility=1)
    return found


def physical(line: str) -> list[tuple[str, bool]]:
    """The lines of one record whose breaks were escaped, without colours: (line, whether the kernel may have written
    it). The first has its own prefix to tell."""
    first, *more = [p for p in _COLOUR.sub("", line).replace("\\x0a", "\n").split("\n") if p.strip()] or [""]
    found = START.search(first)
    by_kernel = found is not None and read_prefix(first[: found.start()]).writer == "kernel"
    return [(first, True), *((part, by_kernel) for part in more)]


def rows(text: str) -> list[str] | None:
    """The records of one whole JSON answer of a log service as JSON lines; None if the text is something else."""
    if text.lstrip()[:1] not in ("{", "[") or len(text) > MAX_ANSWER:
        return None
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(answer, Mapping):
        answer = answer.get("events") or answer.get("results") or []
    found = [_flat(row) for row in answer] if isinstance(answer, list) else []
    return [json.dumps(row) for row in found if row] or None


def _flat(row: Any) -> Mapping[str, Any] | None:
    """A record as a mapping; CloudWatch's queries give a list of field and value."""
    if isinstance(row, Mapping):
        return row
    if isinstance(row, list) and all(isinstance(f, Mapping) and "field" in f for f in row):
        return {str(f["field"]).lstrip("@"): f.get("value") for f in row}
    return None


def _object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _facility(record: Mapping[str, Any]) -> int | None:
    if record.get("stream") in ("stdout", "stderr"):
        return 1
    told = [str(record["_TRANSPORT"]) == "kernel"] if "_TRANSPORT" in record else []
    told += [str(record[k]).lower() in ("0", "kern", "kernel") for k in _FACILITIES if k in record]
    told += [str(record[k]) == "kernel" for k in _WRITERS if k in record]
    return None if not told else 0 if all(told) else 1


def _time(record: Mapping[str, Any]) -> datetime | None:
    stamp = record.get("__REALTIME_TIMESTAMP")
    if isinstance(stamp, str) and stamp.isascii() and stamp.isdigit() and len(stamp) < 18:
        return datetime.fromtimestamp(int(stamp) / 1e6, UTC)
    for key in _TIMES:
        value = record.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 10**9 < value < 10**14:
            return datetime.fromtimestamp(value / 1000 if value > 10**11 else value, UTC)
        if when := parse_time(value):
            return when
    return None

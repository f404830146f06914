"""One scrape of one node's dcgm-exporter, as a collector gets it: bytes in, readings out, everything checked.

What several scrapes tell only together (counted Xids, power that stands still) is given in a small form to compare:
`xids` and `power` of this one with those of the one before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from healthboard.diagnosis.dcgm import clean, gpu_of, interpret
from healthboard.diagnosis.exporter_text import Sample, samples
from healthboard.diagnosis.node_report import LASTING_CLOCK_EVENTS, MAX_GPUS
from healthboard.diagnosis.signals import Event, Reading

MAX_LINE, MAX_LINES = 4_096, 50_000
#: Pairs of a GPU and an Xid that are counted in one window: more is no machine's story.
MAX_XIDS = 256
#: Series that tell of the past and not of a measurement of now.
_XID = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT")
#: A sample with the time at which it was taken, in milliseconds; dcgm-exporter itself prints none.
_STAMPED = re.compile(r"\} \S+ (\d{12,14})$", re.MULTILINE)


class Unusable(ValueError):
    """The answer is no exporter's text about GPUs; the message says why, without a word of the answer's own."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """`xids`: (GPU, Xid) -> how many in the exporter's window. `power`: digest of all power values, empty without any.
    `newest`: the youngest time that a sample carries, None where none carries one."""

    readings: tuple[Reading, ...]
    xids: Mapping[tuple[str, int], int]
    power: str
    newest: datetime | None


def read(body: bytes, *, at: datetime) -> Scrape:
    """Raises Unusable for what is not UTF-8, too long, or tells of no GPU."""
    lines = _lines(body)
    found = list(samples("\n".join(lines)))
    seen = {gpu for s in found if (gpu := gpu_of(s.labels))}
    if not seen:
        raise Unusable("the answer has no series of a GPU")
    if len(seen) > MAX_GPUS:
        raise Unusable(f"the answer tells of {len(seen)} GPUs, at most {MAX_GPUS} are read")
    readings, counted = interpret(found, at=at)
    xids = _xids(counted)
    if len(xids) > MAX_XIDS:
        raise Unusable(f"the answer counts {len(xids)} kinds of Xid, at most {MAX_XIDS} are read")
    readings = [_steady(r) for r in readings if r.gpu]
    measured = {gpu_of(s.labels) for s in found if _measured(s)} - {None}
    if measured:  # where only old Xids are left, the exporter was blinded by one, and no GPU is missing because of it
        readings.append(Reading("GPU_COUNT", len(measured), "dcgm", at, at))
    readings.append(Reading("EXPORTER", "OK", "dcgm", at, at))
    return Scrape(tuple(readings), xids, _power(found), _newest(lines))


def new_xids(now: Scrape, before: Mapping[tuple[str, int], int], *, at: datetime) -> list[Event]:
    """An event for each Xid that is counted more often than before; a count that fell has left the window."""
    found = []
    for (gpu, xid), count in sorted(now.xids.items()):
        more = count - before.get((gpu, xid), 0)
        if more > 0:
            text = f"dcgm-exporter counts {count} of Xid {xid} within its window"
            found.append(Event(at, f"XID_{xid}", "dcgm", gpu, text, count=more))
    return found


def _lines(body: bytes) -> list[str]:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Unusable("the answer is not UTF-8") from None
    lines = [line for line in text.split("\n") if line.startswith("DCGM_") and len(line) <= MAX_LINE]
    if len(lines) > MAX_LINES:
        raise Unusable(f"the answer has {len(lines)} series, at most {MAX_LINES} are read")
    return lines


def _steady(r: Reading) -> Reading:
    """Clock reasons without those that come and go with the load."""
    return replace(r, value=r.value & LASTING_CLOCK_EVENTS) if r.name == "CLOCK_EVENTS" else r


def _measured(s: Sample) -> bool:
    return s.name not in _XID and clean(s.value, s.name.removeprefix("DCGM_FI_DEV_")) is not None


def _xids(counted: list[Event]) -> dict[tuple[str, int], int]:
    """The highest count of each GPU and Xid: MIG instances of one GPU repeat it."""
    found: dict[tuple[str, int], int] = {}
    for event in counted:
        key = (event.gpu or "", int(event.code.removeprefix("XID_")))
        if event.gpu:
            found[key] = max(found.get(key, 0), event.count)
    return found


def _power(found: list[Sample]) -> str:
    """Power never stands still to the last digit on a GPU that is measured: all of it together even less."""
    rows = sorted(
        f"{gpu_of(s.labels)} {s.value!r}"
        for s in found
        if s.name == "DCGM_FI_DEV_POWER_USAGE" and clean(s.value) and s.value % 1
    )
    return hashlib.blake2b("\n".join(rows).encode(), digest_size=8).hexdigest() if rows else ""


def _newest(lines: list[str]) -> datetime | None:
    if not lines or not _STAMPED.search(lines[0]):
        return None
    stamps = [int(m[1]) for line in lines if (m := _STAMPED.search(line))]
    try:
        return datetime.fromtimestamp(max(stamps) / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None

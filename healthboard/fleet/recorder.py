"""The flight recorder: what a node measured of its GPUs in the minutes before something broke.

The samples come from the node as they are; whatever is not a finite number is unknown. Nothing is decided on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from healthboard.diagnosis.parsed import parse_time
from healthboard.fleet.models import HealthEvent, Instance

CODE = "FLIGHT_RECORDER"
#: recordings that are joined, and how much of them is shown
RECORDINGS, SAMPLES, GPUS, MARKS = 3, 240, 16, 40


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    title: str
    unit: str


METRICS = (
    Metric("temperature_c", "Temperature", "°C"),
    Metric("power_w", "Power", "W"),
    Metric("ecc_volatile_corrected", "ECC errors, corrected", ""),
    Metric("ecc_volatile_uncorrected", "ECC errors, uncorrected", ""),
    Metric("row_remap_uncorrectable", "Remapped rows", ""),
    Metric("pcie_replay", "PCIe replays", ""),
)
CLOCKS = "clock_event_reasons"
#: bit of NVML's clock event reasons -> what holds the clocks down
REASONS = {
    0x1: "idle", 0x2: "application clocks", 0x4: "SW power cap", 0x8: "HW slowdown", 0x10: "sync boost",
    0x20: "SW thermal slowdown", 0x40: "HW thermal slowdown", 0x80: "HW power brake", 0x100: "display clocks",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    at: datetime
    code: str


@dataclass(frozen=True, slots=True)
class Track:
    """One GPU: per metric (and for `CLOCKS`) a value or None for each of the recording's times."""

    uuid: str
    index: int | None
    values: dict[str, list[float | None]]

    @property
    def name(self) -> str:
        return f"GPU {self.index}" if self.index is not None else self.uuid


@dataclass(frozen=True, slots=True)
class Recording:
    """Times oldest first; the track in question (`focus`) first among the tracks."""

    key: int  # changes with the recordings behind it
    times: list[datetime]
    tracks: list[Track]
    marks: list[Mark]

    @property
    def focus(self) -> Track:
        return self.tracks[0]

    def rows(self) -> list[dict[str, Any]]:
        """The focus by time, with the clock reasons in words: the table, and the CSV."""
        track = self.focus
        return [
            {"at": at, **{m.name: track.values[m.name][n] for m in METRICS}, "clocks": words(track.values[CLOCKS][n])}
            for n, at in enumerate(self.times)
        ]

    def spans(self) -> list[dict[str, Any]]:
        """Per metric the least and most of the focus and of the others; what nobody told is left out."""
        found = []
        for metric in METRICS:
            mine = [v for v in self.focus.values[metric.name] if v is not None]
            others = [v for track in self.tracks[1:] for v in track.values[metric.name] if v is not None]
            if mine or others:
                found.append({"metric": metric, "mine": _span(mine), "others": _span(others)})
        return found

    def plain(self) -> dict[str, Any]:
        """As the script draws it: seconds since 1970, and one list per GPU and metric."""
        return {
            "times": [at.timestamp() for at in self.times],
            "gpus": [track.name for track in self.tracks],
            "metrics": [
                {"name": m.name, "title": m.title, "unit": m.unit, "values": [t.values[m.name] for t in self.tracks]}
                for m in METRICS
                if any(v is not None for t in self.tracks for v in t.values[m.name])
            ],
            "clocks": _lanes(self.focus.values[CLOCKS]),
            "marks": [{"at": mark.at.timestamp(), "code": mark.code} for mark in self.marks],
        }


def recorded(of: Instance, *, since: datetime | None = None, until: datetime | None = None, gpu: str = "",
             indexes: dict[str, int | None] | None = None) -> Recording | None:  # fmt: skip
    """What was recorded between two times (default: the newest recording), with the events of those minutes.

    `gpu`: the one in question (UUID or PCI address); `indexes`: UUID -> index. Two queries.
    """
    rows = of.events.filter(code=CODE)
    if since is not None:
        rows = rows.filter(last_at__gte=since)
    if until is not None:
        rows = rows.filter(at__lte=until)
    chosen = list(rows.order_by("at", "pk")[:RECORDINGS] if since is not None else rows.order_by("-at", "-pk")[:1])
    samples = _samples(chosen)
    tracks = _tracks(samples, gpu, indexes or {})
    if not samples or not tracks:
        return None
    times = [at for at, _ in samples]
    events = of.events.exclude(code=CODE).filter(last_at__gte=times[0], at__lte=max(row.at for row in chosen))
    marks = [Mark(at, code) for at, code in events.order_by("at", "pk").values_list("at", "code")[:MARKS]]
    return Recording(max(row.pk for row in chosen), times, tracks, marks)


def words(value: float | None) -> str:
    """A mask of clock event reasons in words; empty for none of them."""
    if value is None:
        return "unknown"
    mask = int(value)
    named = [text for bit, text in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return ", ".join([*named, *([f"0x{rest:x}"] if rest else [])])


def _samples(rows: Iterable[HealthEvent]) -> list[tuple[datetime, dict[str, Any]]]:
    """(time, GPU -> readings) of all rows, each time once, the newest `SAMPLES`."""
    found: dict[datetime, dict[str, Any]] = {}
    for row in rows:
        told = row.attrs.get("samples") if isinstance(row.attrs, dict) else None
        for sample in told if isinstance(told, list) else ():
            at = parse_time(sample.get("at")) if isinstance(sample, dict) else None
            gpus = sample.get("gpus") if isinstance(sample, dict) else None
            if at is not None and isinstance(gpus, dict):
                found[at] = gpus
    return sorted(found.items(), key=lambda item: item[0])[-SAMPLES:]


def _tracks(
    samples: Sequence[tuple[datetime, dict[str, Any]]], gpu: str, indexes: dict[str, int | None]
) -> list[Track]:
    uuids = {str(uuid)[:96] for _, gpus in samples for uuid in gpus}
    order = sorted(uuids, key=lambda u: (u != gpu, indexes.get(u) is None, indexes.get(u) or 0, u))[:GPUS]
    names = [m.name for m in METRICS] + [CLOCKS]
    tracks = []
    for uuid in order:
        told = [gpus.get(uuid) for _, gpus in samples]
        values = {name: [_number(one.get(name)) if isinstance(one, dict) else None for one in told] for name in names}
        tracks.append(Track(uuid, indexes.get(uuid), values))
    return tracks


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 2**53:
        return None
    return value


def _lanes(values: Sequence[float | None]) -> dict[str, Any]:
    """One lane per reason that was seen: 1 where it held, else None."""
    seen = [(bit, text) for bit, text in REASONS.items() if any(v is not None and int(v) & bit for v in values)]
    rows = [[1 if v is not None and int(v) & bit else None for v in values] for bit, _ in seen]
    return {"names": [text for _, text in seen], "values": rows}


def _span(values: Sequence[float]) -> str:
    if not values:
        return "unknown"
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"

"""dcgm-exporter's text to readings: one or several scrapes, with the log lines and notes that come with them.

A sentinel is no value. A last-value gauge is a reading, not an event. Several scrapes in one text are told apart by a
series that comes again; what then stands still or is missing is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from healthboard.diagnosis import dcgm_api
from healthboard.diagnosis.exporter_text import Sample, samples
from healthboard.diagnosis.names import gpu_uuid, pci
from healthboard.diagnosis.nvml import fabric_word
from healthboard.diagnosis.parsed import UNDATED, IgnoredCounter, Parsed
from healthboard.diagnosis.signals import Event, Reading

#: From here up an int64 sentinel: as floats they all round to 2^63.
_INT64_BLANK = 2.0**63 - 2**11
#: The margin at which a board slows down: most at -2, some lower.
_MARGINS = {"B200": -3.0}
_HOT_GPU, _HOT_MEMORY, _MARGIN = 90.0, 95.0, -2.0
#: So many retired pages are all that a board before Ampere has, as DCGM judges it.
RETIRED_FULL = 63
#: So many equal readings of the power, which never stands still, are a frozen exporter.
_STALE_AFTER = 3
_INTERVAL = re.compile(r"(\d{1,4}) ?(s|sec|seconds?|min|minutes?)\b[ -]*(?:intervals?|apart|scrapes?)", re.IGNORECASE)
_EXPECTED = re.compile(
    r"(\d{1,2}|one|two|four|eight|sixteen) GPUs? (?:are |were )?expected|expected GPUs?[:= ]+(\d{1,2})", re.I
)
#: a scrape without a single series
_EMPTY = re.compile(
    r"\bempty\b.{0,30}(?:body|response|scrape)|(?:body|response|scrape).{0,30}\bempty\b|no (?:DCGM )?series",
    re.I,
)
_WORDS = {"one": 1, "two": 2, "four": 4, "eight": 8, "sixteen": 16}
_GPU_LIST = re.compile(r'series for (?:gpu=)?([\s"\d,.\-]+)')


def clean(value: float, name: str = "") -> float | None:
    """The value, or None for a blank, an error sentinel or garbage."""
    if value != value or value in (float("inf"), float("-inf")) or value >= _INT64_BLANK:
        return None
    if 2147483632 <= value <= 2147483635 or 140737488355328.0 <= value < 140737488355332.0:
        return None
    if "UTIL" in name and not 0 <= value <= 100:
        return None
    return value


def parse(text: str) -> Parsed:
    """Readings and events of one exporter text."""
    rounds = _rounds(samples(text))
    step = _step(text)
    ignored = IgnoredCounter()
    readings: list[Reading] = []
    events: list[Event] = []
    known = sum(len(r) for r in rounds)
    for n, scrape in enumerate(rounds):
        at = UNDATED + timedelta(seconds=n * step)
        found, counted = interpret(scrape, at=at, ignored=ignored)
        readings += found
        if n == len(rounds) - 1:
            events += counted
    events += _standing_still(rounds, step)
    # one sick GPU may blank the others' series: then what is absent tells nothing
    present = _presence(text, rounds, step, any(r.name == "XID_LAST" and r.value for r in readings))
    readings += present
    known += bool(present)
    notes = [line for line in text.splitlines() if line.strip() and line[0] != "#" and "} " not in line]
    logged = dcgm_api.lines(notes, whole=text)
    known += logged.known + sum(1 for line in text.splitlines() if line.startswith(("# HELP DCGM", "# TYPE DCGM")))
    if not any(rounds) and not logged.events and not logged.readings and (_only_comments(text) or _EMPTY.search(text)):
        events.append(Event(UNDATED, "MONITORING_GAP", "dcgm", text=text[:200], attrs={"undated": True}))
        known = max(known, 1)
    undated = tuple(dcgm_api.snapshot(r) for r in readings)
    return Parsed(tuple(events) + logged.events, undated + logged.readings, ignored.result() + logged.ignored, known)


def _rounds(found: Iterable[Sample]) -> list[list[Sample]]:
    """Samples by scrape: a series that comes again begins the next one."""
    rounds: list[list[Sample]] = [[]]
    seen: set[Any] = set()
    for sample in found:
        key = (sample.name, *sorted(sample.labels.items()))
        if key in seen:
            rounds.append([])
            seen.clear()
        seen.add(key)
        rounds[-1].append(sample)
    return rounds


def _step(text: str) -> float:
    match = _INTERVAL.search(text)
    if not match:
        return 30.0
    return max(1.0, float(match[1]) * (60 if match[2].lower().startswith("m") else 1))


def gpu_of(labels: dict[str, str]) -> str | None:
    """Identity by UUID, else by PCI address; the index is none."""
    for key in ("UUID", "uuid", "gpu_uuid"):
        if key in labels and (uuid := gpu_uuid(labels[key])):
            return uuid
    return pci(labels.get("pci_bus_id"))


def interpret(
    scrape: Iterable[Sample], *, at: Any, ignored: IgnoredCounter | None = None
) -> tuple[list[Reading], list[Event]]:
    """Readings and counted Xids of one scrape."""
    ignored = ignored or IgnoredCounter()
    per_gpu: dict[str | None, dict[str, float]] = {}
    margins: dict[str | None, float] = {}
    events: list[Event] = []
    readings: list[Reading] = []
    for name, labels, raw in scrape:
        short = name.removeprefix("DCGM_FI_DEV_")
        value = clean(raw, short)
        if value is None:
            ignored.add("a sentinel or a value that cannot be", f"{name} {raw}")
            continue
        gpu = gpu_of(labels)
        if name == "DCGM_EXP_XID_ERRORS_COUNT":
            xid = labels.get("xid", "")
            if value >= 1 and xid.isascii() and xid.isdigit() and 0 < int(xid) < 1000:
                attrs = {"undated": True, "window_ms": labels.get("window_size_in_ms")}
                events.append(Event(at, f"XID_{int(xid)}", "dcgm", gpu, attrs=attrs, count=int(value)))
        elif name == "up" and value == 0 and "dcgm" in str(labels).lower():
            events.append(Event(at, "DCGM_UNREACHABLE", "dcgm", attrs={"undated": True}))
        elif short != name or name.startswith("DCGM_FI"):
            if labels.get("GPU_I_ID") and short.endswith("UTIL"):
                continue
            per_gpu.setdefault(gpu, {})[short] = value
            if short == "GPU_TEMP_LIMIT":
                margins[gpu] = _MARGINS.get(labels.get("modelName", "").upper().removeprefix("NVIDIA "), _MARGIN)
    for gpu, fields in per_gpu.items():
        readings += gpu_readings(fields, gpu, at=at, source="dcgm", margin=margins.get(gpu, _MARGIN))
    return readings, events


def gpu_readings(
    fields: dict[str, float], gpu: str | None, *, at: Any, source: str, margin: float = -2.0
) -> list[Reading]:
    """Readings of one GPU's fields, by their names without ``DCGM_FI_DEV_``."""
    found: list[Reading] = []

    def add(name: str, value: Any, **attrs: Any) -> None:
        found.append(Reading(name, value, source, at, at, gpu=gpu, attrs=attrs))

    if "XID_ERRORS" in fields:
        add("XID_LAST", int(fields["XID_ERRORS"]))
    remap = {
        "failure": _flag(fields, "ROW_REMAP_FAILURE"),
        "pending": _flag(fields, "ROW_REMAP_PENDING"),
        "uncorrectable": fields.get("UNCORRECTABLE_REMAPPED_ROWS"),
        "correctable": fields.get("CORRECTABLE_REMAPPED_ROWS"),
    }
    if any(v is not None for v in remap.values()):
        add("ROW_REMAP", remap)
    ecc = {
        "volatile_uncorrected": fields.get("ECC_DBE_VOL_TOTAL"),
        "aggregate_uncorrected": fields.get("ECC_DBE_AGG_TOTAL"),
        "volatile_corrected": fields.get("ECC_SBE_VOL_TOTAL"),
    }
    if any(v is not None for v in ecc.values()):
        add("ECC", {k: v for k, v in ecc.items() if v is not None})
    if (flag := _flag(fields, "THRESHOLD_SRM")) is not None:
        add("SRAM_THRESHOLD", flag)
    pages = fields.get("RETIRED_SBE", 0) + fields.get("RETIRED_DBE", 0)
    if pages >= RETIRED_FULL:
        add("PAGE_RETIREMENT", "full", pages=int(pages))
    elif fields.get("RETIRED_PENDING", 0) > 0:
        add("PAGE_RETIREMENT", "pending")
    if "GET_GPU_RECOVERY_ACTION" in fields:
        add("RECOVERY_ACTION", int(fields["GET_GPU_RECOVERY_ACTION"]))
    for key in ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS", "CLOCK_EVENT_REASONS"):
        if key in fields:
            add("CLOCK_EVENTS", int(fields[key]))
    hot = fields.get("GPU_TEMP", 0) >= _HOT_GPU or fields.get("MEMORY_TEMP", 0) >= _HOT_MEMORY
    hot = hot or fields.get("GPU_TEMP_LIMIT", 0) <= margin
    if {"GPU_TEMP", "MEMORY_TEMP", "GPU_TEMP_LIMIT"} & fields.keys():
        add("TEMPERATURE", "high" if hot else "ok", celsius=fields.get("GPU_TEMP"))
    if "FABRIC_MANAGER_STATUS" in fields:
        add("FABRIC_MANAGER", "down" if fields["FABRIC_MANAGER_STATUS"] == 4 else "ok")
    mask, summary = fields.get("FABRIC_HEALTH_MASK"), fields.get("FABRIC_HEALTH_SUMMARY")
    if mask is not None or summary is not None:
        word = fabric_word(3, mask)
        add("FABRIC", "unhealthy" if summary == 2 or word == "unhealthy" else "ok", mask=mask)
    return found


def _flag(fields: dict[str, float], name: str) -> bool | None:
    """A flag is 0 or 1; what is neither is unknown."""
    return {0: False, 1: True}.get(fields.get(name, -1))


def _standing_still(rounds: list[list[Sample]], step: float) -> list[Event]:
    """Power readings never repeat to the last digit: a frozen exporter does."""
    if len(rounds) < _STALE_AFTER:
        return []
    series: dict[Any, list[float]] = {}
    for scrape in rounds:
        for sample in scrape:
            if sample.name.endswith("POWER_USAGE") and clean(sample.value) and sample.value % 1:
                series.setdefault((sample.name, *sorted(sample.labels.items())), []).append(sample.value)
    for values in series.values():
        if len(values) >= _STALE_AFTER and len(set(values[-_STALE_AFTER:])) == 1:
            at = UNDATED + timedelta(seconds=step * (len(rounds) - 1))
            attrs = {"undated": True}
            return [Event(at, "DCGM_METRICS_STALE", "dcgm", text=f"power stays at {values[-1]}", attrs=attrs)]
    return []


def _presence(text: str, rounds: list[list[Sample]], step: float, blinded: bool) -> list[Reading]:
    """How many GPUs have series, where the text or an earlier scrape tells how many there should be."""
    sets: list[set[str]] = []
    for line in text.splitlines():
        if m := _GPU_LIST.search(line):
            sets.append(_gpu_list(m[1]))
    if not sets:
        sets = [
            {s.labels.get("UUID") or s.labels.get("gpu", "") for s in scrape if s.name.startswith("DCGM_FI")}
            for scrape in rounds
        ]
    sets = [s - {""} for s in sets if s - {""}]
    if not sets:
        return []
    expected = max(len(s) for s in sets)
    if (m := _EXPECTED.search(text)) and not blinded:
        expected = max(expected, int(m[2]) if m[2] else _WORDS.get(m[1].lower()) or int(m[1]))
    at = UNDATED + timedelta(seconds=step * max(0, len(rounds) - 1))
    return [Reading("GPU_COUNT", len(sets[-1]), "dcgm", at, at, attrs={"expected": expected})]


def _only_comments(text: str) -> bool:
    rows = [line.lstrip() for line in text.splitlines() if line.strip()]
    return bool(rows) and all(row.startswith("#") for row in rows)


def _gpu_list(text: str) -> set[str]:
    found: set[str] = set()
    for first, last in re.findall(r'"(\d{1,2})"\s*(?:\.\.+|-|to)\s*"(\d{1,2})"', text):
        found |= {str(n) for n in range(int(first), min(int(last), 63) + 1)}
    return found | set(re.findall(r'"(\d{1,2})"', text))

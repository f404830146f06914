"""What DCGM's programming interface, `dcgmi` and the exporter's log print, to events and readings."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from healthboard.diagnosis import nvml, wording
from healthboard.diagnosis.names import UUID_ANYWHERE, gpu_uuid
from healthboard.diagnosis.parsed import UNDATED, IgnoredCounter, Parsed, at_line, cut
from healthboard.diagnosis.signals import Event, Reading

_FIELD = re.compile(r"^\W*(?:DCGM_FI_DEV_)?([A-Z][A-Z0-9_]{3,60})\s*[=:]\s*(-?\d+(?:\.\d+)?)\b")
_ALIASES = {
    "ECC_DBE_VOLATILE_TOTAL": "ECC_DBE_VOL_TOTAL",
    "ECC_SBE_VOLATILE_TOTAL": "ECC_SBE_VOL_TOTAL",
    "ECC_DBE_AGGREGATE_TOTAL": "ECC_DBE_AGG_TOTAL",
    "XID_ERROR": "XID_ERRORS",
}
#: Words of DCGM's health watches and diagnostics -> our code. Of its names only those of failures count: a field's name
#: says nothing about its value.
_HEALTH: tuple[tuple[str | None, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        (
            "ROW_REMAP_FAILURE",
            r"row remap(?:ping)? (?:has )?fail(?:ed|ures?)\b|remapping failures?\b|failed to remap|DCGM_FR_ROW_REMAP_FAILURE",
        ),
        ("ROW_REMAP_PENDING", r"pending row remap|row remap(?:ping)?s? (?:is |are )?pending|DCGM_FR_PENDING_ROW_REMAP"),
        (
            "SRAM_THRESHOLD",
            r"SRAM.{0,40}threshold.{0,20}exceeded|exceeded.{0,20}SRAM.{0,20}threshold|DCGM_FR_SRAM_THRESHOLD",
        ),
        ("INFOROM_CORRUPT", r"infoROM (?:is )?corrupt|DCGM_FR_CORRUPT_INFOROM"),
        (
            "PAGE_RETIREMENT",
            r"pending (?:retired )?page|page retire|retired pages|DCGM_FR_(?:PENDING_PAGE_RETIREMENTS|RETIRED_PAGES\w*|DBE_PENDING\w*)",
        ),
        ("GPU_FALLEN_OFF_BUS", r"fallen off (?:the )?bus|DCGM_FR_FALLEN_OFF_BUS"),
        ("NVML_GPU_IS_LOST", r"GPU_IS_LOST|GPU is lost"),
        (
            "ECC_UNCORRECTED",
            r"(?:double.bit|uncorrect(?:ed|able)) (?:ECC|memory) error|DCGM_FR_VOLATILE_DBE_DETECTED|volatile double-bit",
        ),
        (
            "GPU_HW_THERMAL_SLOWDOWN",
            r"throttling due to thermal|thermal (?:violation|slowdown)|DCGM_FR_CLOCK_THROTTLE_THERMAL",
        ),
        ("GPU_POWER_BRAKE", r"power brake"),
        ("GPU_OVERTEMP", r"temperature .{0,40}(?:exceed|above|over)|DCGM_FR_TEMP_VIOLATION"),
        (
            "FABRIC_MANAGER_DOWN",
            r"fabric.?manager.{0,60}(?:not running|inactive|dead|failed|not started|down)|DCGM_FR_FABRIC_MANAGER_DOWN",
        ),
        ("PCIE_AER_CORRECTED", r"PCIe? replays?|DCGM_FR_PCI_REPLAY\w*"),
    )
)
_LINK_DOWN = re.compile(
    r"nvlink (?:link )?\d+ is (?:currently )?down|DCGM_FR_NVLINK_DOWN|nvlink.{0,40}(?:error.{0,20}threshold|errors? in field)",
    re.I,
)
_NO_BRIDGE = re.compile(
    r"PCIe\b.{0,80}(?:no|without(?: an?)?) (?:NVLink )?bridge|no NVLink bridge|bridge (?:is )?not fitted", re.I | re.S
)
_ENGINE = r"(?:host ?engine|nv-hostengine|dcgm(?:i|-exporter)?)"
_UNREACHABLE = re.compile(
    rf"CONNECTION_NOT_VALID|DCGM_ST_TIMEOUT|DCGM initialization error|"
    rf"{_ENGINE}\b.{{0,100}}(?:connection (?:refused|is not valid|invalid|lost|not valid)|not running|"
    rf"unable to (?:connect|establish)|can(?:no|')t connect|disconnected|unreachable|timed? ?out|exited|no such file|"
    rf"takes? more than \d+ s|(?:is|was) not valid|hangs\b)|"
    rf"connection to the {_ENGINE}.{{0,30}}(?:not valid|invalid|lost|refused|closed)|"
    rf"unable to establish a connection to the specified host|"
    rf"(?:failed to initialize|error (?:initializing|starting)).{{0,40}}{_ENGINE}", re.IGNORECASE
)  # fmt: skip
_BACK = re.compile(
    r"(?:host ?engine|dcgm).{0,60}(?:re-?connected|connection (?:restored|established))|up again", re.IGNORECASE
)
#: a line of nvidia-smi's long query, which has a reader of its own
_QUERY = re.compile(r"\w {2,}: ")
_HEADING = re.compile(r"\s{2,8}[A-Z]\w{0,20}(?: [A-Z]\w{0,20}){0,4}\s{0,8}$")
_XID = re.compile(r"\bXID[ _:#=]+(\d{1,3})\b", re.IGNORECASE)
_KNOWN = re.compile(r"Overall Health|Health Monitor|NVLINK system|DCGM_|dcgmi|\|\s*(?:Pass|Failure|Warning|Healthy)\b")


def parse(text: str) -> Parsed:
    """Field values (a Python or JSON mapping by UUID, or ``NAME = value`` lines) and health messages."""
    fields = _mapping(text)
    if fields is not None:
        return _from_fields(fields, text)
    return lines(text.splitlines(), whole=text)


def _mapping(text: str) -> Any:
    stripped = text.strip()
    if not stripped.startswith("{") or len(stripped) > 5_000_000:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(stripped)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _from_fields(found: dict[Any, Any], text: str) -> Parsed:
    from healthboard.diagnosis.dcgm import clean, gpu_readings

    ignored = IgnoredCounter()
    readings: list[Reading] = []
    known = 0
    for key, fields in found.items():
        if not isinstance(fields, dict):
            continue
        kept: dict[str, float] = {}
        for name, raw in fields.items():
            if isinstance(raw, bool) or not isinstance(raw, int | float) or not isinstance(name, str):
                continue
            known += 1
            short = name.upper().removeprefix("DCGM_FI_DEV_")
            short = _ALIASES.get(short, short)
            value = clean(float(raw), short)
            if value is None:
                ignored.add("a sentinel or a value that cannot be", f"{name} {raw}")
            else:
                kept[short] = value
        readings += gpu_readings(kept, gpu_uuid(str(key)), at=UNDATED, source="dcgm")
    if not known:
        return lines(text.splitlines(), whole=text)
    marked = tuple(snapshot(r) for r in readings)
    return Parsed((), marked, ignored.result(), known)


def snapshot(r: Reading) -> Reading:
    """A reading of a text without a clock. There is no earlier one to compare with, so that errors counted since the
    driver was loaded stand for themselves."""
    more = {"undated": True, **({"volatile_is_evidence": True} if r.name == "ECC" else {})}
    return replace(r, attrs={**r.attrs, **more})


def lines(rows: Iterable[str], *, whole: str = "") -> Parsed:
    """Health and log lines. A connection that came back, and links that were never fitted, give nothing."""
    from healthboard.diagnosis.dcgm import clean, gpu_readings

    ignored, events, fields, known = IgnoredCounter(), [], {}, 0
    no_bridge = bool(_NO_BRIDGE.search(whole))
    for number, line in enumerate((cut(row, ignored) for row in rows), 1):
        if m := _FIELD.match(line):
            short = _ALIASES.get(m[1], m[1])
            if line.lstrip().startswith("DCGM") or short in _ALIASES.values() or "_" in short:
                known += 1
                value = clean(float(m[2]), short)
                if value is not None:
                    fields[short] = value
                continue
        code = _code(line, no_bridge, ignored)
        if code == "back":
            events = [e for e in events if e.code != "DCGM_UNREACHABLE"]
            code, known = None, known + 1
        known += code is not None or bool(_KNOWN.search(line))
        if code:
            m = UUID_ANYWHERE.search(line)
            gpu = gpu_uuid(m[0]) if m else None
            event = Event(at_line(number), code, "dcgm", gpu, line.strip(" |")[:300], {"undated": True}, seq=number)
            if not any(e.code == code and e.gpu == gpu for e in events):
                events.append(event)
    readings = tuple(snapshot(r) for r in gpu_readings(fields, None, at=UNDATED, source="dcgm"))
    return Parsed(tuple(events), readings, ignored.result(), known)


def speaks_of_health(text: str) -> bool:
    """Whether the text names what DCGM watches, if only to say that nothing is wrong with it."""
    return any(pattern.search(text) for _, pattern in _HEALTH)


def _code(line: str, no_bridge: bool, ignored: IgnoredCounter) -> str | None:
    if "NVRM:" in line or _QUERY.search(line) or _HEADING.match(line) or wording.only_named(line):
        return None
    if _BACK.search(line):
        return "back"
    if wording.says(_LINK_DOWN, line):
        if no_bridge:
            ignored.add("links of a card without a bridge are down by design", line)
            return None
        return "FABRIC_UNHEALTHY"
    if _UNREACHABLE.search(line):
        return "DCGM_UNREACHABLE"
    if (m := _XID.search(line)) and 0 < int(m[1]) < 900:
        return f"XID_{int(m[1])}"
    for code, pattern in _HEALTH:
        if wording.says(pattern, line):
            return code
    code, _ = nvml.code_of(line)
    return code

"""`nvidia-smi --query-… --format=csv`: a line of names, then a line for each GPU, to the fields of the long query."""

from __future__ import annotations

import re
from typing import Any

from healthboard.diagnosis.names import gpu_uuid, pci

_UNREAD = re.compile(
    r"^\[?(?:N/A|Not Supported|Unknown Error|GPU is lost|GPU requires reset|Insufficient Permissions)\]?$", re.I
)
_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?")
_UNIT = re.compile(r"\s{0,8}\[[\w %]{1,20}\]$")
_FLAGS = {
    "remapped_rows.pending": "remap_pending",
    "remapped_rows.failure": "remap_failure",
    "retired_pages.pending": "page_pending",
}
_CLOCKS = {"hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80}
_NAMES = ("index", "name", "uuid", "gpu_uuid", "serial", "pci.bus_id", "gpu_bus_id", "timestamp")


def header(line: str) -> list[str] | None:
    """The names of the columns, without units; None if the line is no header of such a query."""
    names = [_UNIT.sub("", part.strip()).lower() for part in line.split(",")]
    if len(names) < 2 or not all(re.fullmatch(r"[a-z][\w.]{1,60}", name) for name in names):
        return None
    known = sum(name in _NAMES or _FLAGS.get(name) is not None or "." in name or "_" in name for name in names)
    return names if known == len(names) else None


def row(names: list[str], line: str, actions: dict[str, int]) -> tuple[str | None, dict[str, Any]] | None:
    """(GPU, its fields by the long query's keys) of one line below such a header; None if it is none."""
    values = [part.strip() for part in line.split(",")]
    if len(values) != len(names):
        return None
    found: dict[str, Any] = {}
    gpu: str | None = None
    for name, value in zip(names, values, strict=True):
        if name in ("uuid", "gpu_uuid"):
            gpu = gpu_uuid(value) or gpu
        elif name in ("pci.bus_id", "gpu_bus_id"):
            gpu = gpu or pci(value)
        elif not _UNREAD.match(value):
            _field(found, name, value, actions)
    return gpu, found


def _field(into: dict[str, Any], name: str, value: str, actions: dict[str, int]) -> None:
    word = value.lower()
    number = float(m[0]) if (m := _NUMBER.match(value)) else None
    if name in _FLAGS:
        if word in ("yes", "no") or number is not None:
            into[_FLAGS[name]] = word == "yes" or bool(number)
    elif name.startswith("ecc.errors.uncorrected.volatile") and number is not None:
        into["volatile"] = max(into.get("volatile", 0), number)
    elif name.rpartition(".")[2] in _CLOCKS and word in ("active", "not active"):
        bit = _CLOCKS[name.rpartition(".")[2]]
        into["clocks"] = into.get("clocks", 0) | (bit if word == "active" else 0)
    elif name == "temperature.gpu" and number is not None:
        into["temp"] = number
    elif name == "gpu_recovery_action" and word in actions:
        into["recovery"] = actions[word]

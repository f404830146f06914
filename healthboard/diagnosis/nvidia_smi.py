"""`nvidia-smi` text to readings and events: the long query, the table, the list, and what stands around them.

A value that can't be read ("Unknown Error", "N/A") is unknown. What fails inside a container only is the container's
setup, not the node.
"""

from __future__ import annotations

import re
from typing import Any

from healthboard.diagnosis import nvidia_smi_csv, nvml
from healthboard.diagnosis.dcgm import RETIRED_FULL
from healthboard.diagnosis.names import pci
from healthboard.diagnosis.parsed import UNDATED, IgnoredCounter, Parsed, at_line, lines_of
from healthboard.diagnosis.signals import Event, Reading

_GPU = re.compile(r"^GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])\s*$")
_PAIR = re.compile(r"^(\s*)([A-Za-z][\w ./()#-]{0,60}?)\s*:\s(.*)$")
_SECTION = re.compile(r"^(\s*)([A-Za-z][\w ./()-]{0,60}?)\s*$")
_NUMBER = re.compile(r"^(-?\d+(?:\.\d+)?)")
_NONE_FOUND = re.compile(r"No devices were found", re.IGNORECASE)
_BANNER = re.compile(r"NVIDIA-SMI \d|=+NVSMI LOG=+|^GPU \d+: NVIDIA|\bnvidia-smi\b", re.IGNORECASE)
_ERR_CELL = re.compile(r"^\|.*\bERR!")
_MANAGER_DOWN = re.compile(
    r"fabric_?-?manager_?active\W{1,8}false|fabric.?manager.{0,80}(?:inactive|failed|dead|not running|not started)",
    re.IGNORECASE | re.DOTALL,
)
_MANAGER_UNIT = re.compile(r"fabricmanager", re.IGNORECASE)
_UNIT_STATE = re.compile(r"Active:\s*(inactive|failed)", re.IGNORECASE)
_ACTIONS = {"none": 0, "reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4}


def parse(text: str) -> Parsed:
    """Readings of the query sections, and events of the messages."""
    ignored, events, known = IgnoredCounter(), [], 0
    inside = False
    gpu: str | None = None
    sections: list[tuple[int, str]] = []
    fields: dict[str | None, dict[str, Any]] = {}
    unit = False
    columns: list[str] | None = None
    for number, line in enumerate(lines_of(text, ignored), 1):
        inside = bool(nvml.CONTAINER.search(line)) if nvml.PROMPT.match(line) else inside
        unit = unit or bool(_MANAGER_UNIT.search(line))
        code: str | None = None
        if found := nvidia_smi_csv.header(line):
            columns, known = found, known + 1
            continue
        if columns and (cells := nvidia_smi_csv.row(columns, line, _ACTIONS)):
            known += 1
            fields.setdefault(cells[0], {}).update(cells[1])
        if m := _GPU.match(line):
            gpu, sections, known = pci(m[1]), [], known + 1
            continue
        if _NONE_FOUND.search(line):
            code = "GPU_MISSING"
        elif _ERR_CELL.match(line):
            code = "NVML_UNKNOWN_ERROR"
        elif _MANAGER_DOWN.search(line) or (unit and _UNIT_STATE.search(line)):
            code = "FABRIC_MANAGER_DOWN"
        elif (m := _PAIR.match(line)) and not m[3].lstrip().startswith("//"):
            while sections and sections[-1][0] >= len(m[1]):
                sections.pop()
            # the keys of the long query stand in a column; a sentence with a colon does not
            known += "   :" in line
            _pair(fields.setdefault(gpu, {}), [name for _, name in sections], m[2].strip(), m[3].strip(), ignored)
            # a key of the query never holds a message; "Unable to determine ...: Unknown Error" is one
            if line[m.end(2)].isspace() or (m[1] and m[2].count(" ") < 3):
                continue
            code, _ = nvml.code_of(line)
        elif m := _SECTION.match(line):
            while sections and sections[-1][0] >= len(m[1]):
                sections.pop()
            sections.append((len(m[1]), m[2]))
            code, _ = nvml.code_of(line)
        else:
            code, _ = nvml.code_of(line)
        known += code is not None or bool(_BANNER.search(line))
        if code is None:
            continue
        if inside and code in nvml.SETUP_CODES:
            code = "container-setup"
        event = Event(
            at_line(number), code, "nvml", nvml.gpu_in(line), line.strip()[:300], {"undated": True}, seq=number
        )
        events.append(event)
    readings = [r for key, values in fields.items() for r in _readings(key, values)]
    return Parsed(tuple(events), tuple(readings), ignored.result(), known)


def _pair(into: dict[str, Any], path: list[str], key: str, value: str, ignored: IgnoredCounter) -> None:
    place = " / ".join(path).lower()
    word, name = value.lower(), key.lower()
    number = float(m[1]) if (m := _NUMBER.match(value)) else None
    if word in ("unknown error", "n/a", "[n/a]", "[unknown error]", "requested functionality has been deprecated"):
        ignored.add("a value that nvidia-smi could not read is unknown", f"{key} : {value}")
    elif name == "pending" and "remapped" in place:
        into["remap_pending"] = word == "yes"
    elif name == "remapping failure occurred":
        into["remap_failure"] = word == "yes"
    elif "pending page" in name or (name == "pending" and "retired" in place):
        into["page_pending"] = word == "yes"
    elif name in ("single bit ecc", "double bit ecc") and "retired" in place and number is not None:
        into["pages"] = into.get("pages", 0) + number
    elif name == "sram threshold exceeded":
        into["sram"] = word == "yes"
    elif name.startswith("gpu recovery action"):
        into["recovery"] = _ACTIONS.get(word)
    elif "volatile" in place and "ecc" in place and ("uncorrectable" in name or "double bit" in name):
        into["volatile"] = into.get("volatile", 0) + (number or 0)
    elif name in ("hw thermal slowdown", "hw power brake slowdown") and word in ("active", "not active"):
        bit = 0x40 if "thermal" in name else 0x80
        into["clocks"] = into.get("clocks", 0) | (bit if word == "active" else 0)
    elif name == "gpu current temp" and number is not None:
        into["temp"] = number
    elif name == "gpu slowdown temp" and number is not None:
        into["slowdown"] = number
    elif "t.limit" in name and "current" not in name and number is not None and "slowdown" not in name:
        into.setdefault("margin", number)
    elif name == "state" and path and path[-1].lower() == "fabric":
        into["fabric"] = word
    elif name == "status" and path and path[-1].lower() == "fabric":
        into["fabric_status"] = word
    elif name in ("bandwidth", "route unhealthy", "access timeout recovery") and "fabric" in place:
        bad = word in ("degraded", "true", "yes")
        into["fabric_bad"] = into.get("fabric_bad", False) or bad


def _readings(gpu: str | None, found: dict[str, Any]) -> list[Reading]:
    rows: list[Reading] = []

    def add(name: str, value: Any, **attrs: Any) -> None:
        rows.append(Reading(name, value, "nvml", UNDATED, UNDATED, gpu=gpu, attrs={**attrs, "undated": True}))

    if "remap_pending" in found or "remap_failure" in found:
        add("ROW_REMAP", {"pending": found.get("remap_pending"), "failure": found.get("remap_failure")})
    if found.get("pages", 0) >= RETIRED_FULL:
        add("PAGE_RETIREMENT", "full", pages=int(found["pages"]))
    elif found.get("page_pending"):
        add("PAGE_RETIREMENT", "pending")
    if "sram" in found:
        add("SRAM_THRESHOLD", found["sram"])
    if found.get("recovery") is not None:
        add("RECOVERY_ACTION", found["recovery"])
    if "volatile" in found:
        add("ECC", {"volatile_uncorrected": found["volatile"]}, volatile_is_evidence=True)
    if "clocks" in found:
        add("CLOCK_EVENTS", found["clocks"])
    if "temp" in found:
        hot = found["temp"] >= min(found.get("slowdown") or 90.0, 90.0) or found.get("margin", 1) <= -2
        add("TEMPERATURE", "high" if hot else "ok", celsius=found["temp"])
    if "fabric" in found:
        done = found["fabric"].startswith("completed")
        good = found.get("fabric_status", "success") in ("success", "n/a") and not found.get("fabric_bad")
        # in progress is also what healthy GPUs show while the fabric manager is down
        word = "ok" if (done and good) or found["fabric"] in ("n/a", "not supported") else "unhealthy"
        add("FABRIC", word, starting=not done)
    return rows

"""NVML's states and codes, and what its clients print, to events.

The client text is anything that a program using NVML prints: tracebacks, Go device plugins, health checkers. A return
code is not an Xid, even where a program prints it as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from healthboard.diagnosis import wording
from healthboard.diagnosis.names import UUID_ANYWHERE, gpu_uuid, pci
from healthboard.diagnosis.parsed import IgnoredCounter, Parsed, at_line, cut, lines_of, parse_time
from healthboard.diagnosis.signals import Event

NVML_STATES = frozenset(
    {"ok", "library_not_found", "driver_not_loaded", "version_mismatch", "hung", "crashed", "error"}
)
#: NVML return code -> our code; codes that are missing say nothing about a GPU.
CODES = {
    9: "NVML_DRIVER_NOT_LOADED",
    14: "INFOROM_CORRUPT",
    15: "NVML_GPU_IS_LOST",
    16: "GPU_RESET_REQUIRED",
    18: "NVML_LIB_RM_VERSION_MISMATCH",
    999: "NVML_UNKNOWN_ERROR",
}
#: NVML_ERROR_GPU_NOT_FOUND, as the reporter says it of a GPU that it knows and NVML does not list
UNCOUNTED = 28
#: state of the library -> our code
STATES = {
    "driver_not_loaded": "NVML_DRIVER_NOT_LOADED",
    "library_not_found": "NVML_DRIVER_NOT_LOADED",
    "version_mismatch": "NVML_LIB_RM_VERSION_MISMATCH",
    "hung": "NVML_PROBE_HUNG",
    "crashed": "NVML_PROBE_CRASHED",
    "error": "NVML_UNKNOWN_ERROR",
}
#: Fabric health mask: (shift, width, name); a 2-bit field is a fault at 1, the 4-bit one from 2 up.
_FABRIC_FIELDS = (
    (0, 2, "degraded bandwidth"),
    (2, 2, "route recovery"),
    (4, 2, "unhealthy route"),
    (6, 2, "access timeout"),
    (8, 4, "configuration"),
    (12, 2, "partition"),
)


def fabric_faults(mask: int) -> list[str]:
    """The faults that a fabric health mask names; a mask that is not zero may name none."""
    found = []
    for shift, width, name in _FABRIC_FIELDS:
        value = mask >> shift & (1 << width) - 1
        if (value == 1 if width == 2 else value >= 2) and name != "route recovery":
            found.append(name)
    return found


def fabric_word(state: int, mask: float | None, status: float | None = None) -> str:
    """``unsupported``, ``starting``, ``ok`` or ``unhealthy`` for a fabric state (0-3), its health mask, and the NVML code
    with which it was completed (0 is success; None where that is not told)."""
    if state == 0:
        return "unsupported"
    if state in (1, 2):
        return "starting"
    if status:
        return "unhealthy"
    return "unhealthy" if mask is not None and fabric_faults(int(mask)) else "ok"


_PATTERNS: tuple[tuple[str | None, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        ("NVML_GPU_IS_LOST", r"\bGPU is lost\b|NVMLError_GpuIsLost|NVML_ERROR_GPU_IS_LOST|ERROR_GPU_IS_LOST"),
        ("GPU_RESET_REQUIRED", r"NVMLError_ResetRequired|NVML_ERROR_RESET_REQUIRED|GPU requires? (?:a )?reset"),
        (
            "NVML_LIB_RM_VERSION_MISMATCH",
            r"Driver/library version mismatch|NVMLError_LibRmVersionMismatch|LIB_RM_VERSION_MISMATCH|RM has detected an "
            r"NVML/RM version mismatch",
        ),
        (
            "NVML_DRIVER_NOT_LOADED",
            r"Driver Not Loaded|NVMLError_DriverNotLoaded|ERROR_DRIVER_NOT_LOADED|couldn't communicate with the NVIDIA "
            r"driver|NVMLError_LibraryNotFound|NVML Shared Library Not Found|ERROR_LIBRARY_NOT_FOUND|libnvidia-ml\.so"
            r"(?:\.\d+)?:? cannot open",
        ),
        ("INFOROM_CORRUPT", r"NVMLError_CorruptedInforom|ERROR_CORRUPTED_INFOROM|infoROM is corrupted"),
        (
            "NVML_PROBE_CRASHED",
            r"SIGSEGV|segmentation (?:fault|violation)|segfault at.{0,200}nv|core dumped|exit(?:ed)?(?: with)?(?: code| status)? "
            r"(?:139|-11|134|-6)\b|signal: (?:segmentation|abort)|SIGABRT|terminated by signal (?:11|6)",
        ),
        (
            "NVML_PROBE_HUNG",
            r"(?:nvml|nvidia-smi|probe)\b.{0,200}\b(?:hung|hangs|timed out after|did not (?:return|answer))",
        ),
        ("FABRIC_MANAGER_DOWN", r"cudaErrorSystemNotReady|error 802\b|system not yet initialized"),
        (
            "container-setup",
            r"could not select device driver .{0,40}capabilities|unknown or invalid runtime name: nvidia",
        ),
        (None, r"NVMLError_NotSupported|ERROR_NOT_SUPPORTED|: Not Supported|NVMLError_Timeout\b"),
        ("NVML_UNKNOWN_ERROR", r"NVMLError_Unknown\b|NVML_ERROR_UNKNOWN|(?<!\s:\s)\bUnknown Error\b"),
    )
)
_CLIENT_XID = re.compile(r"\bXid[=: ]+(\d{1,4})\b", re.IGNORECASE)
_HANDLE = re.compile(
    r"nvmlDeviceGetHandleBy\w{1,20}\([^()]{0,200}\)\s{0,8}(?:->|==?|:|returned|returns|gives)\s*(\d{1,3})\b"
)
_XID_EVENT = re.compile(r"EventType:8 EventData:(\d{1,4})\b")
_RETURN_CODE = re.compile(
    r"(?:nvmlReturn(?:_t)?|NVML (?:error|return) ?(?:code)?|ret(?:urn)? ?code)[ =:(]+(\d{1,3})\b", re.I
)
_NUMBERED = re.compile(r"fails? with (?:code|error) (\d{1,3})\b|\(code (\d{1,3})\)", re.IGNORECASE)
_ADDRESS = re.compile(r"GPU ?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)")
_TIME = re.compile(r"^\[?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))")
PROMPT = re.compile(r"\s*(?:[\w.@~:/-]*[$#]\s|sudo )")
#: What, seen inside a container, tells of its setup alone.
SETUP_CODES = frozenset({"NVML_UNKNOWN_ERROR", "NVML_DRIVER_NOT_LOADED", "GPU_MISSING", "NVML_LIB_RM_VERSION_MISMATCH"})
CONTAINER = re.compile(r"\b(?:docker|podman|nerdctl|ctr|kubectl) (?:run|exec)\b|inside (?:the|a) container", re.I)


def gpu_in(line: str) -> str | None:
    """The GPU that a client line names: UUID, else PCI address."""
    if m := UUID_ANYWHERE.search(line):
        return gpu_uuid(m[0])
    return pci(m[1]) if (m := _ADDRESS.search(line)) else None


def code_of(line: str) -> tuple[str | None, bool]:
    """(code, known): what one client line says. Known without a code is a line that concerns no GPU's health."""
    if wording.only_named(line):
        return None, False
    if m := _XID_EVENT.search(line):
        return f"XID_{int(m[1])}", True
    if (m := _CLIENT_XID.search(line)) and "NVRM" not in line:
        value = int(m[1])
        if value in CODES and value > 900:
            return CODES[value], True
        return (f"XID_{value}", True) if 0 < value < 900 else (None, True)
    for code, pattern in _PATTERNS:
        if wording.says(pattern, line):
            return code, True
    for pattern in (_RETURN_CODE, _NUMBERED, _HANDLE):
        if m := pattern.search(line):
            value = int(next(g for g in m.groups() if g))
            return CODES.get(value), True
    return None, False


def parse(text: str | Iterable[str]) -> Parsed:
    """Events of what an NVML client printed; each code counts once per line, each Xid once per GPU and line."""
    ignored, events, known = IgnoredCounter(), [], 0
    rows = lines_of(text, ignored) if isinstance(text, str) else (cut(row, ignored) for row in text)
    inside = False
    last_xid: dict[str, Any] = {}
    for number, line in enumerate(rows, 1):
        inside = bool(CONTAINER.search(line)) if PROMPT.match(line) else inside
        code, is_known = code_of(line)
        known += is_known or "nvml" in line.lower()
        if code is None:
            if is_known:
                ignored.add("an answer of NVML that says nothing about a GPU's health", line)
            continue
        if inside and code in SETUP_CODES:
            code = "container-setup"
        gpu = gpu_in(line)
        m = _TIME.match(line)
        at = parse_time(m[1]) if m else None
        attrs: dict[str, Any] = {} if at else {"undated": True}
        if code.startswith("XID_"):
            # one event is logged twice: as it is processed, then with the device it belongs to
            if code in last_xid and gpu and last_xid[code].gpu is None:
                events.remove(last_xid[code])
            elif code in last_xid and gpu is None:
                continue
        event = Event(at or at_line(number), code, "nvml", gpu, line.strip()[:300], attrs, seq=number)
        events.append(event)
        if code.startswith("XID_"):
            last_xid[code] = event
    return Parsed(tuple(events), (), ignored.result(), known)

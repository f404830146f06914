"""Texts by their format: which reader reads one, how a text without a format is recognised, whose evidence it is.

Log-like formats are read by their own reader first, and by the kernel's and NVML's readers for the lines that people
paste beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from healthboard.diagnosis import comms, dcgm, dcgm_api, documents, ecs_agent_log, kernel_log, nvidia_smi, nvml
from healthboard.diagnosis.kernel_prefix import START
from healthboard.diagnosis.parsed import UNDATED, Parsed, at_line
from healthboard.diagnosis.signals import Event, Reading
from healthboard.diagnosis.wording import only_named

FORMATS = (
    "auto", "kernel-log", "dcgm", "dcgm-api", "nvidia-smi", "nvml", "ec2-status", "ecs-describe", "ecs-event",
    "ecs-agent-log", "aws-health",
)  # fmt: skip
#: Kinds of recorded samples by the format that reads them; any other kind is recognised by its text.
KINDS = {
    "kernel_xid": "kernel-log", "kernel_gpu_lost_no_xid": "kernel-log", "kernel_gpu_init": "kernel-log",
    "kernel_pcie_aer": "kernel-log", "kernel_sxid": "kernel-log", "dcgm_exporter": "dcgm", "dcgm_api": "dcgm-api",
    "nvidia_smi": "nvidia-smi", "nvml_pynvml": "nvml", "ec2_status": "ec2-status", "ecs_describe": "ecs-describe",
    "ecs_event": "ecs-event", "ecs_agent_log": "ecs-agent-log", "aws_health": "aws-health",
}  # fmt: skip

_API_ERROR = re.compile(r"An error occurred \((\w[\w.]*)\) when calling the (\w+) operation|(InvalidInstanceID\.\w+)")
_API_SILENCE = re.compile(
    r"(?:Connect|Read)TimeoutError|EndpointConnectionError|Could not connect to the endpoint|Read timeout", re.I
)
_GPUD = re.compile(r'"component"\s*:\s*"accelerator-nvidia')


def read(text: str, format_: str) -> Parsed:
    """Everything the text gives, by its format. `known` is 0 where nothing of it was understood."""
    if format_ == "auto":
        return _auto(text)
    if format_ in ("ec2-status", "ecs-describe", "ecs-event", "aws-health"):
        found = documents.read(text)
        return found if found.known else _api_error(text)
    primary = _LINES[format_]
    found = primary(text)
    beside = _beside(text, format_, found)
    return found + beside


_LINES: dict[str, Callable[[str], Parsed]] = {
    "kernel-log": kernel_log.parse,
    "dcgm": dcgm.parse,
    "dcgm-api": dcgm_api.parse,
    "nvidia-smi": nvidia_smi.parse,
    "nvml": nvml.parse,
    "ecs-agent-log": ecs_agent_log.parse,
}
#: What an NVML client may say in the middle of a kernel log; a crash there may be any program's.
_IN_KERNEL_LOG = frozenset(
    {"NVML_GPU_IS_LOST", "NVML_UNKNOWN_ERROR", "NVML_LIB_RM_VERSION_MISMATCH", "NVML_DRIVER_NOT_LOADED"}
)


_COUNTED = re.compile(r"\b(\d{1,2}) (?:of|out of) (?:the )?(\d{1,2}) GPUs?\b", re.IGNORECASE)
_VERSIONS = re.compile(
    r"(?:upgrad|updat|replac|install)\w* .{0,40}\bdriver|\bdriver\b.{0,40}(?:upgrad|updat|was changed|replaced)|"
    r"\bfrom \d{3}\.\d{2,3}(?:\.\d+)? to \d{3}\.\d{2,3}|^(?:Upgrade|Install): .*nvidia", re.IGNORECASE | re.MULTILINE
)  # fmt: skip


def _version_change(found: Parsed) -> Event:
    """The same initialisation failure, marked as one that comes with a change of the driver's version."""
    event = next(e for e in found.events if e.code == "GPU_INIT_FAILED")
    return replace(event, code="GPU_INIT_FAILED", attrs={**event.attrs, "versions": True}, seq=(event.seq or 0) + 1)


def _beside(text: str, format_: str, found: Parsed) -> Parsed:
    """Lines of other tools in the same text, as far as they add a code."""
    extra = Parsed()
    if format_ != "kernel-log" and ("NVRM" in text or "SXid" in text):
        extra = extra + kernel_log.parse(text)
    if format_ == "kernel-log":
        rest = [line if not START.search(line) else "" for line in text.splitlines()]
        said = nvml.parse(rest)
        # placed where they stand, among lines that may carry an uptime
        extra = extra + replace(said, events=tuple(e for e in said.events if e.code in _IN_KERNEL_LOG), ignored=())
    codes = {e.code for e in found.events}
    if (m := _COUNTED.search(text[:200_000])) and not any(r.name == "GPU_COUNT" for r in found.readings):
        attrs = {"expected": int(m[2]), "undated": True}
        extra = extra + Parsed((), (Reading("GPU_COUNT", int(m[1]), "nvml", UNDATED, UNDATED, attrs=attrs),), known=1)
    if "GPU_INIT_FAILED" in codes and _VERSIONS.search(text[:200_000]):
        extra = extra + Parsed((_version_change(found),))
    new = tuple(e for e in extra.events if e.code not in codes or e.attrs.get("versions"))
    return replace(extra, events=new)


#: How a quiet log of each kind looks: without findings it is healthy, not unrecognised.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "ecs-agent-log",
        re.compile(r"^(?:\d{4}-\d\d-\d\dT\S+ \[(?:INFO|WARN|ERROR|DEBUG|CRITICAL)\]|level=\w+ time=\S+ msg=)"),
    ),
    (
        "kernel-log",
        re.compile(
            r"^(?:<\d+>)?\[ *\d+\.\d+\] |^\d+,\d+,\d+,[^;]*;|^\w{3}\s+\d+ [\d:]{8} \S+ kernel: |^\[\w{3} \w{3} +\d+ "
        ),
    ),
    ("dcgm", re.compile(r"^# (?:HELP|TYPE) \w+ |^DCGM_\w+\{")),
)


def _shape(text: str) -> str | None:
    rows = [row for row in text[:20_000].splitlines() if row.strip()][:40]
    for format_, pattern in _SHAPES:
        if rows and sum(bool(pattern.match(row)) for row in rows) * 2 > len(rows):
            return format_
    return None


def _auto(text: str) -> Parsed:
    answers = documents.read(text)
    if answers.known:
        return answers
    error = _api_error(text)
    if error.known:
        return error
    if _GPUD.search(text):
        return read(text, "nvidia-smi")
    best: tuple[int, str, Parsed] | None = None
    unread: tuple[Event, ...] = ()
    for format_, primary in _LINES.items():
        found = _by_tools(primary(text))
        if format_ == "kernel-log" and not found.known:
            unread = found.events  # a reader's own word that it could not read
        weight = found.known + 3 * len(found.events) + 2 * len(found.readings)
        if found.known and (best is None or weight > best[0]):
            best = (weight, format_, found)
    shape = _shape(text)
    if best is None and (told := comms.parse(text)).known:
        return told
    if best is None and unread:
        return Parsed(unread, known=1)
    if best is None:
        return Parsed(known=1) if shape or dcgm_api.speaks_of_health(text[:20_000]) else Parsed()
    if shape and not best[2].events and not best[2].readings:
        return replace(_LINES[shape](text), known=1)
    return best[2] + _beside(text, best[1], best[2])


#: the record of a program in a system log, and the programs whose word on an Xid counts
_RECORD = re.compile(r"\s*(?:<\d{1,3}>)?[A-Z]\w{2}\s{1,2}\d{1,2} [\d:]{8} \S{1,100} ([\w./-]{1,60})(?:\[\d+\])?: ")
_TOOLS = re.compile(r"nv|dcgm|gpu|ecs|kernel|device-plugin", re.IGNORECASE)


def _by_tools(found: Parsed) -> Parsed:
    """Without the Xids that some other program's record, or a table of processes, only speaks of."""

    def counts(event: Event) -> bool:
        if event.source == "kernel" or not event.code.startswith("XID_"):
            return True
        record = _RECORD.match(event.text)
        return not only_named(event.text) and (record is None or _TOOLS.search(record[1]) is not None)

    return replace(found, events=tuple(e for e in found.events if counts(e)))


def _api_error(text: str) -> Parsed:
    match = _API_ERROR.search(text)
    if match:
        name = match[1] or match[3]
        if name.startswith("InvalidInstanceID"):
            code = "EC2_INSTANCE_NOT_FOUND"
        elif name in ("ClientException", "InvalidParameterException") and "container instance" in text.lower():
            code = "ECS_INSTANCE_MISSING"
        else:
            code = "MONITORING_GAP"
    elif _API_SILENCE.search(text):
        code = "MONITORING_GAP"
    else:
        return Parsed()
    source = "ecs" if "ontainerInstance" in text or "ecs" in text.lower() else "ec2"
    event = Event(at_line(1), code, source, text=text.strip()[:300], attrs={"undated": True})
    return Parsed((event,), known=1)

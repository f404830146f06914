"""A node's report (schema 1) to events, readings and facts about its GPUs.

What the report says about itself is checked strictly: a wrong type is `BadReport` with the path of the field. Fields
that the schema doesn't know are ignored, and a measurement that is null stays unknown; it never becomes zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis.kernel_log import KernelLog
from healthboard.diagnosis.names import gpu_uuid, pci
from healthboard.diagnosis.nvml import NVML_STATES, UNCOUNTED, fabric_word
from healthboard.diagnosis.parsed import Ignored, number, parse_time
from healthboard.diagnosis.signals import Event, Reading

GPU_STATUSES = frozenset({"ok", "lost", "error", "reset_required"})
MAX_GPUS, MAX_KERNEL, MAX_RESULTS = 64, 5_000, 50
#: Hotter than any of these boards runs under load when its cooling works, in degrees Celsius.
HOT_C = 90
#: The clock-event bits that a reading keeps: slowed by hardware, by heat (software, hardware), by the power brake. The
#: others (idle, power cap …) change with the load all the time.
LASTING_CLOCK_EVENTS = 0x8 | 0x20 | 0x40 | 0x80
#: A clock that runs ahead of ours by more than this is not believed: its times are shifted to our receipt.
MAX_AHEAD = timedelta(seconds=60)
_NUMBERS = (
    "temperature_c", "power_w", "utilization_pct", "memory_used_mib", "memory_total_mib", "recovery_action",
    "clock_event_reasons", "pcie_replay", "nvlink_down", "fabric_state", "fabric_health",
    "fabric_status",
)  # fmt: skip
_ECC = ("volatile_corrected", "volatile_uncorrected", "aggregate_corrected", "aggregate_uncorrected")


class BadReport(ValueError):
    """The report does not follow the schema; the text says which field and why."""


@dataclass(frozen=True, slots=True)
class GpuFact:
    index: int
    uuid: str | None
    serial: str | None
    name: str | None
    pci: str | None
    status: str
    measurements: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeReading:
    boot_id: str
    booted_at: datetime
    seq: int
    driver: str | None
    events: tuple[Event, ...]
    readings: tuple[Reading, ...]
    gpus: tuple[GpuFact, ...]
    at: datetime
    ignored: tuple[Ignored, ...] = ()
    results: tuple[Mapping[str, Any], ...] = ()


def read(report: Any, *, received_at: datetime) -> NodeReading:
    """The report's evidence. Raises `BadReport` and nothing else."""
    if not isinstance(report, Mapping):
        raise BadReport("the report must be a JSON object")
    if report.get("schema") != 1 or isinstance(report.get("schema"), bool):
        raise BadReport(f"schema {report.get('schema')!r} is not supported: only 1 is")
    boot_id = _text(report, "boot_id", limit=64, required=True)
    seq = _integer(report, "seq", required=True)
    sent_at = _time(report, "sent_at")
    uptime = number(report.get("uptime_s"))
    if uptime is None or not 0 <= uptime < 4e8:
        raise BadReport("uptime_s must be a number of seconds")
    shift = received_at - sent_at if sent_at - received_at > MAX_AHEAD else timedelta()
    at = sent_at + shift
    try:
        booted_at = at - timedelta(seconds=float(uptime))
    except OverflowError as error:
        raise BadReport("sent_at is out of range") from error
    gpus = _gpus(report)
    events, ignored = _kernel(report, boot_id or "", shift, {g.pci: g.uuid for g in gpus if g.pci and g.uuid})
    if report.get("kernel_overrun") is True:
        events.append(Event(at, "KMSG_OVERRUN", "node", boot_id=boot_id, text="kernel messages were overwritten"))
    readings = [
        Reading("BOOT_ID", boot_id, "node", at, at, attrs={"booted_at": booted_at.isoformat()}),
        *_nvml(report, gpus, at),
    ]
    results = _list(report, "results", MAX_RESULTS)
    return NodeReading(
        boot_id or "", booted_at, seq or 0, _text(report, "driver", limit=64), tuple(events), tuple(readings), gpus, at,
        ignored, tuple(results),
    )  # fmt: skip


def _gpus(report: Mapping[str, Any]) -> tuple[GpuFact, ...]:
    facts = []
    for n, item in enumerate(_list(report, "gpus", MAX_GPUS)):
        where = f"gpus[{n}]."
        status = item.get("status")
        if status not in GPU_STATUSES:
            raise BadReport(f"{where}status must be one of {', '.join(sorted(GPU_STATUSES))}")
        index = _integer(item, "index", where=where, required=True)
        measured: dict[str, Any] = {key: _number(item, key, where) for key in _NUMBERS}
        measured["code"] = _integer(item, "code", where=where)
        ecc, remap = _object(item, "ecc", where), _object(item, "row_remap", where)
        if ecc is not None:
            measured["ecc"] = {key: _number(ecc, key, f"{where}ecc.") for key in _ECC}
            measured["ecc"]["sram_threshold"] = _flag(ecc, "sram_threshold", f"{where}ecc.")
        if remap is not None:
            measured["row_remap"] = {
                **{key: _number(remap, key, f"{where}row_remap.") for key in ("correctable", "uncorrectable")},
                **{key: _flag(remap, key, f"{where}row_remap.") for key in ("pending", "failure")},
            }
        facts.append(
            GpuFact(
                index or 0,
                gpu_uuid(_text(item, "uuid", where=where, limit=64)),
                _text(item, "serial", where=where, limit=64) or None,
                _text(item, "name", where=where, limit=120),
                pci(_text(item, "pci", where=where, limit=32)),
                str(status),
                measured,
            )
        )
    return tuple(facts)


def _kernel(
    report: Mapping[str, Any], boot_id: str, shift: timedelta, uuids: Mapping[str, str]
) -> tuple[list[Event], tuple[Ignored, ...]]:
    log = KernelLog(boot_id=boot_id)
    for n, item in enumerate(_list(report, "kernel", MAX_KERNEL)):
        where = f"kernel[{n}]."
        text = item.get("text")
        if not isinstance(text, str):
            raise BadReport(f"{where}text must be a text")
        seq = _integer(item, "seq", where=where, required=True)
        facility = _integer(item, "facility", where=where)
        at = _time(item, "at", where)
        # a facility that is not given can't vouch for the kernel
        log.feed(text, at=at + shift, seq=seq, facility=1 if facility is None else facility)
    parsed = log.result()
    named = {**log.uuids, **uuids}
    events = []
    for event in parsed.events:
        events.append(replace(event, gpu=named.get(event.gpu or "", event.gpu)))
    return events, parsed.ignored


def _nvml(report: Mapping[str, Any], gpus: tuple[GpuFact, ...], at: datetime) -> list[Reading]:
    def reading(name: str, value: Any, gpu: str | None = None, **attrs: Any) -> Reading:
        return Reading(name, value, "nvml", at, at, gpu=gpu, attrs=attrs)

    nvml = _object(report, "nvml", "") or {}
    state = nvml.get("state")
    state = state if isinstance(state, str) and state in NVML_STATES else "error"
    detail = nvml.get("detail")
    found = [reading("NVML", state, code=_integer(nvml, "code", where="nvml."), detail=str(detail or "")[:200])]
    efa = _object(report, "efa", "")
    if efa is not None and (present := _integer(efa, "present", where="efa.")) is not None:
        found.append(reading("EFA_COUNT", present, expected=_integer(efa, "expected", where="efa.")))
    if state != "ok":
        # what a silent library remembered is no reading of now
        return found
    count = _integer(report, "gpu_count")
    if count is not None:
        found.append(reading("GPU_COUNT", count))
    for fact in gpus:
        gpu, got = fact.uuid or fact.pci, fact.measurements
        if count == 0 and fact.status == "lost" and got["code"] == UNCOUNTED:
            continue  # none at all points at the software first; that each is gone is only remembered
        found.append(reading("GPU_STATUS", fact.status, gpu, index=fact.index, code=got["code"], pci=fact.pci))
        if got["recovery_action"] is not None and fact.status != "lost":
            found.append(reading("RECOVERY_ACTION", int(got["recovery_action"]), gpu))
        if fact.status != "ok":
            continue
        if got.get("row_remap"):
            found.append(reading("ROW_REMAP", dict(got["row_remap"]), gpu))
        if ecc := got.get("ecc"):
            if ecc["sram_threshold"] is not None:
                found.append(reading("SRAM_THRESHOLD", ecc["sram_threshold"], gpu))
            counters = {key: ecc[key] for key in _ECC if ecc[key] is not None}
            if counters:
                found.append(reading("ECC", counters, gpu))
        if got["clock_event_reasons"] is not None:
            found.append(reading("CLOCK_EVENTS", int(got["clock_event_reasons"]) & LASTING_CLOCK_EVENTS, gpu))
        if got["temperature_c"] is not None:
            hot = "high" if got["temperature_c"] >= HOT_C else "ok"
            found.append(reading("TEMPERATURE", hot, gpu, celsius=got["temperature_c"]))
        if got["fabric_state"] is not None:
            status = got["fabric_status"]
            word = fabric_word(int(got["fabric_state"]), got["fabric_health"], status)
            found.append(reading("FABRIC", word, gpu, mask=got["fabric_health"], status=status))
    return found


def _list(item: Mapping[str, Any], key: str, limit: int) -> list[Mapping[str, Any]]:
    value = item.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, Mapping) for row in value):
        raise BadReport(f"{key} must be a list of objects")
    if len(value) > limit:
        raise BadReport(f"{key} has {len(value)} items, at most {limit} are read")
    return value


def _object(item: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any] | None:
    value = item.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BadReport(f"{where}{key} must be an object")
    return value


def _text(
    item: Mapping[str, Any], key: str, *, where: str = "", limit: int = 200, required: bool = False
) -> str | None:
    value = item.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, str) or len(value) > limit or (required and not value.strip()) or "\0" in value:
        raise BadReport(f"{where}{key} must be a text of at most {limit} characters")
    return value


def _integer(item: Mapping[str, Any], key: str, *, where: str = "", required: bool = False) -> int | None:
    value = item.get(key)
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise BadReport(f"{where}{key} must be a whole number, not negative")
    return value


def _number(item: Mapping[str, Any], key: str, where: str) -> float | int | None:
    value = item.get(key)
    if value is None:
        return None
    if (good := number(value)) is None:
        raise BadReport(f"{where}{key} must be a number or null")
    return good


def _flag(item: Mapping[str, Any], key: str, where: str) -> bool | None:
    value = item.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadReport(f"{where}{key} must be true, false or null")
    return value


def _time(item: Mapping[str, Any], key: str, where: str = "") -> datetime:
    value = item.get(key)
    when = parse_time(value) if isinstance(value, str) else None
    if when is None or not 2000 <= when.year < 9000:
        raise BadReport(f"{where}{key} must be a time in ISO 8601")
    return when

"""One node report (schema 1), as the reporter on a real node would send it now."""

from __future__ import annotations

import zlib
from typing import Any

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.faults import LOST
from healthboard.sandbox.hardware import TYPES, TypeSpec
from healthboard.sandbox.injure import faults_of
from healthboard.sandbox.protocol.serialize import iso
from healthboard.sandbox.world import World

REPORTER, DRIVER = "1.0.0", "580.95.05"
LINES_PER_REPORT = 200
RECORDER_STEP_S, RECORDER_SAMPLES = 15, 20


def build(world: World, instance: Instance, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Raises the instance's report number."""
    now = world.now()
    spec = TYPES[instance.type]
    instance.report_seq += 1
    nvml = {"state": "ok", "code": 0, "detail": ""}
    for fault, _ in faults_of(instance):
        nvml.update(fault.nvml)
    busy = _busy(world, instance)
    gpus = _gpus(instance, spec, busy, now) if nvml["state"] == "ok" else []
    report: dict[str, Any] = {
        "schema": 1,
        "reporter": REPORTER,
        "boot_id": instance.boot_id,
        "seq": instance.report_seq,
        "sent_at": iso(now),
        "uptime_s": round(now - instance.booted_at, 1),
        "driver": DRIVER,
        "nvml": nvml,
        "gpu_count": _count(instance, spec) if nvml["state"] == "ok" else None,
        "gpus": gpus,
        "kernel": [{**line, "at": iso(line["at"])} for line in instance.kernel[:LINES_PER_REPORT]],
        "kernel_overrun": False,
        "efa": {"expected": None, "present": spec.efa},
        "recorder": _recorder(instance, spec, busy, now) if instance.recorder_due else [],
        "results": results,
    }
    return report


def _busy(world: World, instance: Instance) -> set[str]:
    container = world.container_of.get(instance.id)
    return {g for t in world.live_tasks(container.id) if t.last == "RUNNING" for g in t.gpus} if container else set()


def _count(instance: Instance, spec: TypeSpec) -> int:
    """A GPU lost under way still counts until the next boot; one that is missing doesn't."""
    gone = sum(
        1
        for fault, record in faults_of(instance)
        if fault.gpu.get("status") == "missing"
        or (fault.gpu.get("status") == "lost" and record["at"] < instance.booted_at)
    )
    return spec.gpus - gone


def _noise(*parts: object) -> float:
    """0 to 1, cheap and repeatable."""
    return zlib.crc32(repr(parts).encode()) / 2**32


def _gpus(instance: Instance, spec: TypeSpec, busy: set[str], now: float) -> list[dict[str, Any]]:
    rows = []
    changes: dict[int, list[Any]] = {}
    for fault, record in faults_of(instance):
        if fault.gpu and record["gpu"] is not None:
            changes.setdefault(record["gpu"], []).append(fault)
    for index, card in enumerate(instance.gpus):
        faults = changes.get(index, [])
        if any(f.gpu.get("status") == "missing" for f in faults):
            continue
        row = reading(spec, index, card, card["uuid"] in busy, now)
        if any(f.gpu.get("status") == "lost" for f in faults):
            row.update(LOST)
        else:
            for fault in faults:
                _merge(row, fault.gpu)
        rows.append(row)
    return rows


def _merge(row: dict[str, Any], changes: Any) -> None:
    for key, value in changes.items():
        row[key] = {**row[key], **value} if isinstance(value, dict) else value


def reading(spec: TypeSpec, index: int, card: dict[str, str], busy: bool, now: float) -> dict[str, Any]:
    """A healthy GPU."""
    noise = _noise(card["uuid"], int(now))
    return {
        "index": index,
        "uuid": card["uuid"],
        "serial": card["serial"],
        "name": spec.gpu_name,
        "pci": card["pci"],
        "status": "ok",
        "code": 0,
        "temperature_c": int(54 + 10 * noise) if busy else int(29 + 4 * noise),
        "power_w": round(spec.watts * (0.85 + 0.15 * noise), 1) if busy else round(spec.watts * (0.11 + 0.02 * noise), 1),
        "utilization_pct": int(88 + 12 * noise) if busy else 0,
        "memory_used_mib": int(spec.gpu_memory * 0.75) if busy else 4,
        "memory_total_mib": spec.gpu_memory,
        "ecc": {
            "volatile_corrected": 0, "volatile_uncorrected": 0, "aggregate_corrected": 0, "aggregate_uncorrected": 0,
            "sram_threshold": False,
        },
        "row_remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "recovery_action": 0,
        "clock_event_reasons": 0 if busy else 1,
        "pcie_replay": 0,
        "nvlink_down": 0 if spec.nvlink else None,
        "fabric_state": 3 if spec.nvlink else 0,
        "fabric_health": None,
        "fabric_status": 0 if spec.nvlink else None,
    }  # fmt: skip


def _recorder(instance: Instance, spec: TypeSpec, busy: set[str], now: float) -> list[dict[str, Any]]:
    """The last minutes before the fault: as they would have been sampled."""
    keys = ("temperature_c", "power_w", "utilization_pct", "clock_event_reasons", "pcie_replay")
    out = []
    for step in range(RECORDER_SAMPLES, 0, -1):
        at = now - step * RECORDER_STEP_S
        if at < instance.booted_at:
            continue
        gpus = {}
        for index, card in enumerate(instance.gpus):
            row = reading(spec, index, card, card["uuid"] in busy, at)
            gpus[card["uuid"]] = {
                **{k: row[k] for k in keys},
                "ecc_volatile_corrected": 0,
                "ecc_volatile_uncorrected": 0,
                "row_remap_uncorrectable": 0,
            }
        out.append({"at": iso(at), "gpus": gpus})
    return out

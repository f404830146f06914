"""What a node's dcgm-exporter would print now: from the same state as the reporter's reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.hardware import TYPES, TypeSpec
from healthboard.sandbox.injure import faults_of
from healthboard.sandbox.nodes.report import DRIVER, _busy, _gpus
from healthboard.sandbox.world import World

#: dcgm-exporter's own window of counted Xids, in seconds
WINDOW_S = 300
#: after it DCGM asks the driver of this host nothing any more: only the Xids are left
BLINDING = 119
#: DCGM's "not supported" of a whole number, as older exporters print it
UNSUPPORTED = 2147483634
_XID = re.compile(r"\[ *([\d.]+)\] NVRM: Xid \(PCI:([0-9a-f:]+)\): (\d+),")


def text(world: World, instance: Instance) -> str | None:
    """None where the exporter hangs with the driver. Call with the lock held."""
    if any(fault.nvml.get("state") == "hung" for fault, _ in faults_of(instance)):
        return None
    now, spec = world.now(), TYPES[instance.type]
    xids = _xids(instance)
    last = {pci: rows[-1][1] for pci, rows in xids.items()}
    series: dict[str, list[str]] = {}
    for row in _gpus(instance, spec, _busy(world, instance), now):
        labels = _labels(row, spec, instance)
        for name, value in _fields(row, spec, last, blinded=BLINDING in last.values()).items():
            series.setdefault(name, []).append(f"{name}{{{labels}}} {value}")
        for xid, count in _window(xids.get(row["pci"], []), now - instance.booted_at).items():
            counted = f'{labels},window_size_in_ms="{WINDOW_S * 1000}",xid="{xid}"'
            series.setdefault("DCGM_EXP_XID_ERRORS_COUNT", []).append(f"DCGM_EXP_XID_ERRORS_COUNT{{{counted}}} {count}")
    lines = [line for name, rows in series.items() for line in (f"# HELP {name} {name}", f"# TYPE {name} gauge", *rows)]
    return "\n".join(lines) + "\n"


def serving(instance: Instance, draining: bool) -> bool:
    """A daemon task of a machine whose driver loads: ECS stops it on DRAINING."""
    silent = any(
        fault.nvml.get("state") == "version_mismatch" or "no_exporter" in fault.flags
        for fault, _ in faults_of(instance)
    )
    return bool(TYPES[instance.type].gpus) and not draining and not silent


def _xids(instance: Instance) -> dict[str, list[tuple[float, int]]]:
    """PCI address -> (seconds since the boot, Xid) of this boot's kernel log, oldest first."""
    found: dict[str, list[tuple[float, int]]] = {}
    for line in instance.console:
        if m := _XID.match(line):
            found.setdefault(m[2], []).append((float(m[1]), int(m[3])))
    return found


def _window(rows: list[tuple[float, int]], uptime: float) -> Mapping[int, int]:
    counts: dict[int, int] = {}
    for at, xid in rows:
        if uptime - at <= WINDOW_S:
            counts[xid] = counts.get(xid, 0) + 1
    return counts


def _labels(row: dict[str, Any], spec: TypeSpec, instance: Instance) -> str:
    host = "Hostname" if spec.gpu_model == "A100" else "hostname"  # renamed by a later exporter
    return (
        f'gpu="{row["index"]}",UUID="{row["uuid"]}",pci_bus_id="0000{row["pci"].upper()}.0",device="nvidia{row["index"]}",'
        f'modelName="{spec.gpu_name}",{host}="ip-{instance.private_ip.replace(".", "-")}",DCGM_FI_DRIVER_VERSION="{DRIVER}"'
    )


def _fields(row: dict[str, Any], spec: TypeSpec, last: Mapping[str, int], *, blinded: bool) -> dict[str, Any]:
    """Series by name; those without a value are left out, as newer exporters do."""
    xid = last.get(row["pci"])
    found: dict[str, Any] = {"XID_ERRORS": 0 if xid is None and not blinded else xid}
    if row["status"] != "lost" and not blinded:
        ecc, remap = row["ecc"] or {}, row["row_remap"] or {}
        found |= {
            "GPU_TEMP": row["temperature_c"],
            "MEMORY_TEMP": row["temperature_c"] + 4 if "HBM" in spec.gpu_name else UNSUPPORTED,
            "POWER_USAGE": f"{row['power_w'] + row['index'] / 1000:.6f}",
            "GPU_UTIL": row["utilization_pct"],
            "FB_USED": row["memory_used_mib"],
            "ECC_SBE_VOL_TOTAL": ecc.get("volatile_corrected"),
            "ECC_DBE_VOL_TOTAL": ecc.get("volatile_uncorrected"),
            "ECC_DBE_AGG_TOTAL": ecc.get("aggregate_uncorrected"),
            "THRESHOLD_SRM": int(bool(ecc.get("sram_threshold"))),
            "CORRECTABLE_REMAPPED_ROWS": remap.get("correctable"),
            "UNCORRECTABLE_REMAPPED_ROWS": remap.get("uncorrectable"),
            "ROW_REMAP_PENDING": int(bool(remap.get("pending"))),
            "ROW_REMAP_FAILURE": int(bool(remap.get("failure"))),
            "GET_GPU_RECOVERY_ACTION": row["recovery_action"],
            "CLOCK_THROTTLE_REASONS": row["clock_event_reasons"],
            "PCIE_REPLAY_COUNTER": row["pcie_replay"],
        }
    return {f"DCGM_FI_DEV_{name}": value for name, value in found.items() if value is not None}

"""A node's report, as the reporter makes it, for tests."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from healthboard import clock

UUIDS = [f"GPU-11111111-2222-3333-4444-{n:012d}" for n in range(8)]


def iso(at) -> str:
    return at.isoformat().replace("+00:00", "Z")


def gpu(index: int, **fields: Any) -> dict[str, Any]:
    values = {
        "index": index, "uuid": UUIDS[index], "serial": f"165{index}", "name": "NVIDIA H100 80GB HBM3",
        "pci": f"0000:{0x30 + index:02x}:00", "status": "ok", "code": 0, "temperature_c": 45, "power_w": 310.5,
        "utilization_pct": 97, "memory_used_mib": 61000, "memory_total_mib": 81559,
        "ecc": {"volatile_corrected": 0, "volatile_uncorrected": 0, "aggregate_corrected": 0,
                "aggregate_uncorrected": 0, "sram_threshold": False},
        "row_remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "recovery_action": 0, "clock_event_reasons": 4, "pcie_replay": 0, "nvlink_down": 0, "fabric_state": 3,
        "fabric_health": None,
    }  # fmt: skip
    return {**values, **fields}


def report(seq: int = 1, *, ago: float = 0.0, **fields: Any) -> dict[str, Any]:
    at = clock.now() - timedelta(seconds=ago)
    values = {
        "schema": 1, "reporter": "1.0.0", "boot_id": "boot-a", "seq": seq, "sent_at": iso(at), "uptime_s": 1234.5 + seq,
        "driver": "580.95.05", "nvml": {"state": "ok", "code": 0, "detail": ""}, "gpu_count": 8,
        "gpus": [gpu(n) for n in range(8)], "kernel": [], "kernel_overrun": False,
        "efa": {"expected": None, "present": 32},
    }  # fmt: skip
    return {**values, **fields}


def xid(seq: int, number: int = 79, *, index: int = 3, ago: float = 1.0) -> dict[str, Any]:
    text = f"NVRM: Xid (PCI:0000:{0x30 + index:02x}:00): {number}, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return {"seq": seq, "at": iso(clock.now() - timedelta(seconds=ago)), "facility": 0, "level": 3, "text": text}


def post(client, body: Any, token: str | None, **headers: Any):
    data = body if isinstance(body, bytes | str) else json.dumps(body)
    if token is not None:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    content_type = headers.pop("content_type", "application/json")
    return client.post("/api/v1/node/reports", data=data, content_type=content_type, **headers)

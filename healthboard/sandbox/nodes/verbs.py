"""The verbs that a report's answer may ask for, in simulation."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.hardware import TYPES
from healthboard.sandbox.injure import faults_of
from healthboard.sandbox.nodes.report import DRIVER
from healthboard.sandbox.protocol.serialize import iso

#: verb -> wall seconds that it takes
SECONDS = {"diagnose-1": 2.0, "diagnose-2": 5.0, "bug-report": 3.0}
BASE = ("nvml", "gpu_count", "init", "ecc", "row_remap", "recovery_action", "thermal", "nvlink", "pcie")


def result(instance: Instance, request: str, verb: str, started: float, finished: float) -> dict[str, Any]:
    spec = TYPES[instance.type]
    failed: dict[str, str] = {}
    for fault, record in faults_of(instance):
        if fault.check:
            name, detail = fault.check
            where = f"GPU {record['gpu']} {instance.gpus[record['gpu']]['uuid']}: " if record["gpu"] is not None else ""
            failed[name] = where + detail
    checks = [{"name": n, "ok": n not in failed, "detail": failed.get(n, _good(n, spec.gpus))} for n in BASE]
    checks += [{"name": n, "ok": False, "detail": d} for n, d in failed.items() if n not in BASE]
    if verb == "diagnose-2":
        ok = not failed
        checks.append({"name": "memory_bandwidth", "ok": ok, "detail": "within 3 % of nominal" if ok else "not run"})
        checks.append({"name": "sm_stress", "ok": ok, "detail": "60 s without an error" if ok else "not run"})
    passed = all(c["ok"] for c in checks)
    if verb == "bug-report":
        output = "\n".join(["nvidia-bug-report", f"driver {DRIVER}", f"boot {instance.boot_id}", *instance.console])
        passed, checks = True, []
    else:
        output = "\n".join(f"{'PASS' if c['ok'] else 'FAIL'}  {c['name']}: {c['detail']}" for c in checks)
    return {
        "request": request,
        "verb": verb,
        "started_at": iso(started),
        "finished_at": iso(finished),
        "ok": passed,
        "exit": 0 if passed else 1,
        "output": output[:65536],
        "checks": checks,
    }


def _good(name: str, gpus: int) -> str:
    return {"gpu_count": f"{gpus} of {gpus}", "nvml": f"driver {DRIVER}", "recovery_action": "none"}.get(name, "good")

"""What can be derived from an instance at a moment: its EC2 checks, whether its kernel runs, whether its agent can."""

from __future__ import annotations

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.injure import faults_of

#: (status, since): status as EC2 prints it; `since` only for "impaired"
Check = tuple[str, float | None]


def flags(instance: Instance) -> set[str]:
    return {flag for fault, _ in faults_of(instance) for flag in fault.flags}


def since(instance: Instance, flag: str) -> float | None:
    return min((record["at"] for fault, record in faults_of(instance) if flag in fault.flags), default=None)


def rebooting(instance: Instance, now: float) -> bool:
    return instance.reboot_until is not None and now < instance.reboot_until


def kernel_runs(instance: Instance, now: float) -> bool:
    return instance.state == "running" and not rebooting(instance, now) and "dead" not in flags(instance)


def checks(instance: Instance, now: float) -> dict[str, Check]:
    """The three EC2 checks: system, instance, ebs."""
    if instance.state not in ("running", "stopping", "shutting-down"):
        return dict.fromkeys(("system", "instance", "ebs"), ("not-applicable", None))
    have = flags(instance) if instance.faults else set()
    result: dict[str, Check] = dict.fromkeys(("system", "instance", "ebs"), ("ok", None))
    if now < instance.checks_ok_at:
        result = dict.fromkeys(result, ("initializing", None))
    if rebooting(instance, now):
        begun, end = instance.reboot_at or now, instance.reboot_until or now
        failing = begun + min(10.0, 0.15 * (end - begun))
        if now >= failing:
            result["instance"] = ("impaired", failing)
    for name in ("system", "instance", "ebs"):
        if name in have:
            result[name] = ("impaired", since(instance, name))
    if "system" in have:
        result["instance"] = ("impaired", since(instance, "system"))
    return result


def impaired_since(instance: Instance, now: float) -> float | None:
    """Since when a group would call it unhealthy: EC2's system or instance check, or a retirement event."""
    marks = [
        at for name in ("system", "instance") for status, at in [checks(instance, now)[name]] if status == "impaired"
    ]
    if instance.faults and "event" in flags(instance):
        marks.append(since(instance, "event"))
    return min((m for m in marks if m is not None), default=None)

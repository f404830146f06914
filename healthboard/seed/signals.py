"""What a made-up machine tells: readings that hold, and the lines and readings of one fault of the sandbox's list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from healthboard.diagnosis import names
from healthboard.diagnosis.kernel_log import KernelLog
from healthboard.diagnosis.signals import Context, Event, Reading
from healthboard.fleet import heads
from healthboard.fleet.models import Head, HealthEvent, Interval
from healthboard.sandbox.faults import FAULTS, Fault
from healthboard.seed.machines import GPUS, Machine

#: source of a reading -> the channel that carries it
CHANNEL = {"ec2": "ec2", "ecs": "ecs", "nvml": "node", "node": "node"}
#: before this a head has told nothing that is kept
KEPT = timedelta(days=2)


def events(one: Machine, fault: Fault, at: datetime, gpu: int) -> list[Event]:
    """The kernel's lines of the fault, as the parser reads them; they name the GPU by its UUID."""
    card = one.gpus[gpu]
    log = KernelLog(boot_id=one.row.boot_id)
    fills = {"index": gpu, "pci": card.pci, "uuid": card.uuid, "serial": card.serial, "pid": 4711, "name": "python3"}
    for n, line in enumerate(fault.lines):
        log.feed(line.format(**fills), at=at + timedelta(milliseconds=20 * n), seq=900 + n, facility=0)
    return [replace(event, gpu=card.uuid if event.gpu else None) for event in log.result().events]


def readings(one: Machine, now: datetime, fault: Fault | None = None, at: datetime | None = None,
             gpu: int = 0) -> list[Reading]:  # fmt: skip
    """All that holds at `now`: the usual since the boot, what the fault changed since `at`."""
    changed = dict(_changed(one, fault, gpu)) if fault else {}
    found = []
    for key, value in {**_usual(one), **changed}.items():
        source, name, uuid = key
        since = at if at is not None and key in changed else max(one.booted_at, now - KEPT)
        last = now
        if fault and "silent" in fault.flags and CHANNEL[source] == "node":
            last = at or now
        rounds = int((last - since) / heads.interval(CHANNEL[source])) + 1
        found.append(Reading(name, value, source, since, last, max(rounds, 1), uuid or None))
    return found


def context(one: Machine) -> Context:
    row = one.row
    return Context(
        instance=row.instance_id, instance_type=row.instance_type, expected_gpus=row.gpus_expected,
        architecture=names.architecture_of_model(one.home.kind.gpu), boot_id=row.boot_id, booted_at=row.booted_at,
        expected_uuids=tuple(g.uuid for g in one.gpus), gpu_names={g.pci: g.uuid for g in one.gpus},
        launched_at=row.launched_at,
    )  # fmt: skip


def _usual(one: Machine) -> dict[tuple[str, str, str], Any]:
    told: dict[tuple[str, str, str], Any] = {
        ("ec2", name, ""): "OK" for name in ("EC2_SYSTEM", "EC2_INSTANCE", "EC2_ATTACHED_EBS")
    }
    told |= {("ecs", name, ""): "OK" for name in ("AGENT_CONNECTIVITY", "CONTAINER_RUNTIME", "ACCELERATED_COMPUTE")}
    told |= {("ecs", "ECS_STATUS", ""): "ACTIVE", ("node", "BOOT_ID", ""): one.row.boot_id}
    told |= {("nvml", "NVML", ""): "ok", ("nvml", "GPU_COUNT", ""): GPUS}
    return told | {("nvml", "GPU_STATUS", card.uuid): "ok" for card in one.gpus}


def _changed(one: Machine, fault: Fault, gpu: int) -> Iterator[tuple[tuple[str, str, str], Any]]:
    card, shown = one.gpus[gpu], fault.gpu
    if status := shown.get("status"):
        yield ("nvml", "GPU_STATUS", card.uuid), status
    if shown.get("status") in ("lost", "missing"):
        yield ("nvml", "GPU_COUNT", ""), GPUS - 1
    if shown.get("recovery_action"):
        yield ("nvml", "RECOVERY_ACTION", card.uuid), shown["recovery_action"]
    if shown.get("row_remap") and shown.get("status") is None:
        remap = {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False, **shown["row_remap"]}
        yield ("nvml", "ROW_REMAP", card.uuid), remap
    if fault.nvml:
        yield ("nvml", "NVML", ""), fault.nvml["state"]
    for flag, key in FLAGS.items():
        if flag in fault.flags:
            yield key, "IMPAIRED"


FLAGS = {
    "system": ("ec2", "EC2_SYSTEM", ""),
    "instance": ("ec2", "EC2_INSTANCE", ""),
    "ebs": ("ec2", "EC2_ATTACHED_EBS", ""),
    "agent_away": ("ecs", "AGENT_CONNECTIVITY", ""),
    "runtime": ("ecs", "CONTAINER_RUNTIME", ""),
}


def show(one: Machine, fault: Fault, gpu: int, at: datetime) -> None:
    """The rows of the machine and its GPU as they stand while the fault lasts."""
    card = one.gpus[gpu]
    if fault.gpu:
        status = fault.gpu.get("status", "ok")
        card.status = status if status != "reset_required" else "reset_required"
        card.measurements = {**card.measurements, **{k: v for k, v in fault.gpu.items() if k != "status"}}
    if "agent_away" in fault.flags:
        one.row.agent_connected = False
    if "silent" in fault.flags:
        one.row.node_seen_at = at


# --- as rows


def event_rows(one: Machine, told: list[Event]) -> list[HealthEvent]:
    return [
        HealthEvent(
            instance=one.row, source=e.source, code=e.code, gpu=e.gpu or "", at=e.at, last_at=e.last_at or e.at,
            received_at=e.at + timedelta(seconds=1), count=e.count, boot_id=e.boot_id or "", seq=e.seq, text=e.text,
            attrs=heads.clean(dict(e.attrs)),
        )
        for e in told
    ]  # fmt: skip


def interval_rows(one: Machine, told: list[Reading], now: datetime) -> tuple[list[Head], list[Interval]]:
    """Heads of the three channels, and an open interval for each reading."""
    first = max(one.booted_at, now - KEPT)
    last: dict[str, datetime] = {}
    for reading in told:
        last[CHANNEL[reading.source]] = reading.last
    made = {
        channel: Head(
            instance=one.row, channel=channel, first_at=first, last_at=at, boot_id=one.row.boot_id,
            count=_rounds(channel, first, at), seq=_rounds(channel, first, at) if channel == "node" else -1,
        )
        for channel, at in last.items()
    }  # fmt: skip
    rows = [
        Interval(
            head=made[CHANNEL[r.source]], instance=one.row, source=r.source, name=r.name, gpu=r.gpu or "",
            value=heads.clean(r.value), attrs={}, since=r.since, first_count=_rounds(CHANNEL[r.source], first, r.since),
        )
        for r in told
    ]  # fmt: skip
    return list(made.values()), rows


def _rounds(channel: str, first: datetime, at: datetime) -> int:
    return int((at - first) / heads.interval(channel)) + 1


def fault_of(code: str) -> Fault:
    return FAULTS[code]

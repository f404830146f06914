"""Putting a fault on an instance, and taking it away."""

from __future__ import annotations

import uuid
from typing import Any

from healthboard.sandbox import queue
from healthboard.sandbox.entities import Instance, Shortage
from healthboard.sandbox.faults import FAULTS, HOST, MOMENT, REBOOT, Fault
from healthboard.sandbox.hardware import TYPES, digest
from healthboard.sandbox.kernel import say
from healthboard.sandbox.world import World

EVENT = {
    "Code": "instance-retirement",
    "Description": "The instance is running on degraded hardware",
}


class BadInjection(ValueError):
    """The instance, code or GPU cannot be meant; one line."""


def check(worlds: list[World], instance_ids: list[str], code: str, gpu: int | None) -> list[tuple[World, Instance]]:
    """Everything is checked before anything is changed, so that a bad id in a list breaks nothing."""
    fault = FAULTS.get(code)
    if fault is None:
        raise BadInjection(f"no such code: {code} (see inject --list)")
    found = []
    for id_ in instance_ids:
        world = next((w for w in worlds if id_ in w.instances), None)
        if world is None or world.instances[id_].state in ("terminated", "shutting-down"):
            raise BadInjection(f"no such instance: {id_}")
        instance = world.instances[id_]
        count = TYPES[instance.type].gpus
        if gpu is not None and not 0 <= gpu < count:
            raise BadInjection(f"{id_} has {count} GPUs, there is no GPU {gpu}")
        if "no_exporter" in fault.flags and not world.config.exporters:
            raise BadInjection("no exporter is read in this sandbox (HEALTHBOARD_EXPORTERS=on)")
        if fault.on_gpu and count == 0:
            raise BadInjection(f"{id_} has no GPU")
        found.append((world, instance))
    if not found:
        raise BadInjection("no instance named")
    return found


def inject(world: World, instance: Instance, code: str, gpu: int | None = None) -> None:
    """Apply `code` now. `gpu` is an index; where the fault needs one and none is named, GPU 0."""
    fault = FAULTS[code]
    now = world.now()
    index = (gpu or 0) if fault.on_gpu else None
    if "shortage" in fault.flags:
        key = f"{instance.type}/{instance.zone}"
        if key not in world.shortages:
            world.add(Shortage(id=key, type=instance.type, zone=instance.zone, at=now))
        return
    if "blink" in fault.flags:
        container = world.container_of.get(instance.id)
        if container:
            container.blink_until = world.after(30)
        return
    for line in fault.lines:
        say(world, instance, index, line)
    if fault.notice:
        queue.NOTICES[fault.notice](world, instance)
    if fault.ends == MOMENT:
        return
    record = {"code": code, "gpu": index, "at": now, "id": uuid.uuid4().hex}
    others = [f for f in instance.faults if (f["code"], f["gpu"]) != (code, index)]
    instance.faults = [*others, record]
    if "zone_issue" not in fault.flags:  # of that the machine itself knows nothing
        instance.recorder_due = True
    if "event" in fault.flags:
        event = {
            **EVENT,
            "InstanceEventId": "instance-event-" + digest(instance.id, now)[:17],
            "NotBefore": now + 14 * 86400,
        }
        instance.events = [*instance.events, event]
        queue.retirement(world, instance, event)
    if "zone_issue" in fault.flags:
        queue.zone_issue(world, instance, begun=now)


def clear(world: World, instance: Instance, code: str, gpu: int | None = None) -> None:
    """Take the fault away as if it had been mended. Clearing what isn't there changes nothing."""
    fault = FAULTS[code]
    if "shortage" in fault.flags:
        shortage = world.shortages.get(f"{instance.type}/{instance.zone}")
        if shortage:
            world.remove(shortage)
        return
    gone = [f for f in instance.faults if f["code"] == code and gpu in (None, f["gpu"])]
    for record in gone:
        for line in fault.clear_lines:
            say(world, instance, record["gpu"], line)
        if "zone_issue" in fault.flags:
            queue.zone_issue(world, instance, begun=record["at"], closed=True)
    instance.faults = [f for f in instance.faults if f not in gone]
    if "event" in fault.flags:
        for event in instance.events:
            if not event["Description"].startswith("["):
                queue.retirement(world, instance, event, closed=True)
        instance.events = [
            {**e, "Description": "[Completed] " + e["Description"]} if not e["Description"].startswith("[") else e
            for e in instance.events
        ]


def faults_of(instance: Instance) -> list[tuple[Fault, dict[str, Any]]]:
    return [(FAULTS[f["code"]], f) for f in instance.faults if f["code"] in FAULTS]


def after_reboot(instance: Instance) -> None:
    instance.faults = [f for f in instance.faults if FAULTS[f["code"]].ends not in (REBOOT, MOMENT)]


def after_move(instance: Instance) -> None:
    """Another host: what belonged to the old one stays there."""
    instance.faults = [f for f in instance.faults if FAULTS[f["code"]].ends not in (REBOOT, MOMENT, HOST)]
    instance.events = []

"""The kernel log of a simulated node: lines wait here until a report has delivered them."""

from __future__ import annotations

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.hardware import digest
from healthboard.sandbox.world import World

CONSOLE_LINES = 200


def say(world: World, instance: Instance, gpu: int | None, text: str) -> None:
    """Log `text`, with the GPU's address, UUID and so on filled in. The GPU's identity comes first, once per boot."""
    now = world.now()
    if gpu is not None and gpu < len(instance.gpus):
        card = instance.gpus[gpu]
        identity = f"NVRM: GPU at PCI:{card['pci']}: {card['uuid']}"
        if "Xid" in text and not any(identity in line for line in instance.console):
            _append(instance, now, identity, 6)
            _append(instance, now, f"NVRM: GPU Board Serial Number: {card['serial']}", 6)
        pid = 2000 + int(digest(instance.id, gpu, instance.boot_id)[:4], 16) % 60000
        text = text.format(index=gpu, pid=pid, name="python3", **card)
    _append(instance, now, text, 3)


def _append(instance: Instance, now: float, text: str, level: int) -> None:
    instance.kmsg_seq += 1
    line = {"seq": instance.kmsg_seq, "at": now, "facility": 0, "level": level, "text": text}
    instance.kernel = [*instance.kernel, line][-500:]
    stamp = max(0.0, now - instance.booted_at)
    instance.console = [*instance.console, f"[{stamp:12.6f}] {text}"][-CONSOLE_LINES:]

"""The GPUs of the machine that this worker runs on: the reporter's own NVML reading, without a reporter.

The reading is made by the reporter's child process, which has a time limit and is never waited for once it hangs. It is
stored as that one instance's, in a channel of its own: where a reporter runs as well, neither counts as the other's
repetition. One worker process takes this task, on the host's own queue.
"""

from __future__ import annotations

import contextlib
import logging

from healthboard import config
from healthboard.api import node_intake
from healthboard.api.node_schema import Report
from healthboard.fleet.models import Head, Instance
from workers.collect import sources
from workers.node import healthboard_node as node

log = logging.getLogger(__name__)
CHANNEL = "local"


class Reader:
    """The keeper of the child, for the life of this process."""

    def __init__(self) -> None:
        self.settings = node.Settings()
        self.probe = node.NvmlProbe(self.settings)
        self.inventory = node.Inventory(
            str(config.home() / "local-gpus.json"), node.machine_identity(self.settings.sysfs), self.settings.boot_id
        )

    def report(self, seq: int) -> dict:
        """A node's report (schema 1) without a kernel log. Takes as long as the reporter's time limit at most."""
        reading = self.probe.read()
        return node.build_report(self.settings, seq, reading, self.inventory.complete(reading), [], False)

    def close(self) -> None:
        self.probe.close()


_reader: Reader | None = None


def collect() -> bool:
    """One reading; False if none was due, or the instance that the setting names is not known."""
    global _reader
    instance_id = config.local_gpus()
    instance = Instance.objects.filter(instance_id=instance_id, gone_at=None).first() if instance_id else None
    if instance is None:
        if instance_id:
            log.warning("HEALTHBOARD_LOCAL_GPUS=%s is not in the inventory (yet): nothing is read", instance_id)
        return False
    claim = sources.claim(instance.account, instance.region, CHANNEL, instance.instance_id)
    if claim is None:
        return False
    try:
        _reader = _reader or Reader()
        report = Report.model_validate(_reader.report(_next(instance, _reader.settings.boot_id)))
        node_intake.take(instance, report, channel=CHANNEL)
    except (node.ConfigError, OSError, ValueError) as error:
        claim.failed(f"the GPUs of this host cannot be read: {error}")
        return False
    seen = report.nvml.state == "ok"
    claim.good(calls=1, note="" if seen else f"NVML: {report.nvml.state}: {report.nvml.detail}")
    return True


def close() -> None:
    """End the child."""
    global _reader
    if _reader is not None:
        with contextlib.suppress(OSError):
            _reader.close()
        _reader = None


def _next(instance: Instance, boot_id: str) -> int:
    """The number of the next report of this boot; it goes on where an earlier process stopped."""
    head = Head.objects.filter(instance=instance, channel=CHANNEL, boot_id=boot_id).first()
    return head.seq + 1 if head else 1

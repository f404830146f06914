"""The GPUs of an instance, by UUID, from what its node reports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q

from healthboard.diagnosis.node_report import GpuFact
from healthboard.fleet import heads
from healthboard.fleet.models import Gpu, Instance

#: EC2's states of an instance that has no host; it is started again on another
NO_HARDWARE = frozenset({"stopped", "terminated"})


def identity(facts: Sequence[GpuFact]) -> list[list[Any]]:
    """What makes a report a change of the GPUs themselves, measurements left out."""
    return [[f.index, f.uuid, f.serial, f.name, f.pci, f.status] for f in facts]


def sync(instance: Instance, facts: Sequence[GpuFact], at: datetime) -> int:
    """Bring the rows of this instance's GPUs up to date; gives how many are new. Call inside a transaction.

    A GPU that is no longer told stays as missing, unless all that are expected are there without it: then the hardware
    was exchanged and the old one belongs to nobody. A UUID that another machine holds is left to that one: silence
    gives nothing away, and one node's word takes nothing from another.
    """
    told = {f.uuid: f for f in facts if f.uuid}
    rows = list(
        Gpu.objects.select_related("instance").filter(
            Q(account_id=instance.account_id, uuid__in=list(told)) | Q(instance=instance)
        )
    )
    by_uuid = {row.uuid: row for row in rows}
    by_pci = {row.pci: row for row in rows if row.instance_id == instance.pk and row.pci}
    made: list[Gpu] = []
    changed: dict[int, Gpu] = {}
    columns: set[str] = set()
    for fact in facts:
        row = by_uuid.get(fact.uuid or "") or (by_pci.get(fact.pci or "") if not fact.uuid else None)
        if row is None:
            if fact.uuid:
                row = Gpu(account_id=instance.account_id, region=instance.region, uuid=heads.text(fact.uuid, 96))
                _fill(row, instance, fact, at)
                made.append(row)
            continue
        if row.instance_id not in (None, instance.pk) and _held_elsewhere(row):
            continue
        columns |= _fill(row, instance, fact, at)
        changed[row.pk] = row
    whole = instance.gpus_expected is not None and len(told) >= instance.gpus_expected
    for row in rows:
        if row.instance_id != instance.pk or row.pk in changed:
            continue
        if whole:
            row.instance, row.index = None, None
            columns |= {"instance", "index"}
        elif row.status != "missing":
            row.status = "missing"
            columns.add("status")
        else:
            continue
        changed[row.pk] = row
    Gpu.objects.bulk_create(made, ignore_conflicts=True)
    if columns:  # mostly the measurements alone: a column that nothing changed costs as much as one that something did
        Gpu.objects.bulk_update(changed.values(), sorted(columns), batch_size=200)
    return len(made)


def measurements(facts: Sequence[GpuFact]) -> dict[str, Any] | None:
    """UUID -> measurements of those that can be read; None where one of them tells no UUID: then `sync` has to look which
    it is."""
    ok = [f for f in facts if f.status == "ok"]
    return {f.uuid: f.measurements for f in ok if f.uuid} if all(f.uuid for f in ok) else None


def _fill(row: Gpu, instance: Instance, fact: GpuFact, at: datetime) -> set[str]:
    """Set what was told; gives the names of the columns that differ now."""
    values: dict[str, Any] = {
        "region": instance.region,
        "index": fact.index,
        "serial": heads.text(fact.serial, 64) or row.serial,
        "name": heads.text(fact.name, 100) or row.name,
        "pci": heads.text(fact.pci, 20) or row.pci,
        "status": heads.text(fact.status, 20),
    }
    if fact.status == "ok" or not row.measurements:
        values |= {"measurements": heads.clean(fact.measurements), "measured_at": at}
    differing = {name for name, value in values.items() if getattr(row, name) != value}
    for name in differing:
        setattr(row, name, values[name])
    if row.instance_id != instance.pk:
        row.instance = instance
        differing.add("instance")
    return differing


def _held_elsewhere(row: Gpu) -> bool:
    """Whether another machine holds this GPU still: nobody but EC2 says that it is gone, or was stopped since it read
    this GPU last. What its own NVML shows in full without it belongs to nobody already.

    However long it is silent: a node that hangs with its GPU is silent, and what is known of that GPU must stay with it.
    """
    other = row.instance
    if other is None or other.gone_at is not None or other.state in NO_HARDWARE:
        return False
    return not (other.launched_at and row.measured_at and row.measured_at < other.launched_at)

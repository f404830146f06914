"""Hardware that was given back as broken, known by UUID and serial, so that it is recognised when it comes again.

The only writer of a GPU's condemnation; each mark and each lifting is audited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from healthboard import clock
from healthboard.audit.record import record
from healthboard.fleet.models import Gpu, Instance
from healthboard.fleet.record import touch
from healthboard.people.access import require
from healthboard.people.actors import Actor
from healthboard.refusals import Closed, Invalid, NotFound


@transaction.atomic
def condemn(
    instance: Instance, gpus: Iterable[str], why: str, *, actor: Actor, repair_id: int | None = None,
    heir: Instance | None = None,
) -> int:  # fmt: skip
    """Mark these GPUs of an instance (UUIDs, or PCI addresses where no UUID is known); returns how many are new.

    What it named is the word of one node: hardware that another machine has is left alone, and that is on record. `heir`:
    what was launched in its place, on which the same hardware may have come back already.
    """
    names = [name for name in gpus if name]
    known = Q(account=instance.account_id, uuid__in=names) | Q(instance=instance, pci__in=names)
    free = Gpu.objects.select_for_update(of=("self",)).filter(known, condemned_at=None)
    rows = list(free.select_related("instance").order_by("pk"))
    mine = {None, instance.pk, heir.pk if heir else None}
    boards = {row.serial for row in rows if telling(row.serial)}
    others = Gpu.objects.filter(account=instance.account_id, serial__in=boards, instance__gone_at=None)
    claimed = set(others.exclude(instance=None).exclude(instance__in=mine - {None}).values_list("serial", flat=True))
    marked = 0
    for row in rows:
        payload = {"uuid": row.uuid, "serial": row.serial}
        about = {"actor": actor, "instance": instance, "repair_id": repair_id, "payload": payload}
        if row.instance_id not in mine or row.serial in claimed:
            text = f"{row.uuid} not condemned: {instance} named it, and another machine has it"
            record("gpu.left", f"gpu:{row.pk}", text, **about)
            continue
        row.condemned_at, row.condemned_why = clock.now(), why[:255]
        row.save(update_fields=["condemned_at", "condemned_why"])
        record("gpu.condemned", f"gpu:{row.pk}", f"{row.uuid} condemned: {why}", **about)
        marked += 1
    return marked


@transaction.atomic
def lift(gpu_id: int, *, actor: Actor, reason: str) -> Gpu:
    """The GPU may serve again, by an approver's or admin's word. Raises a `Refusal`."""
    reason = (reason or "").replace("\0", "").strip()
    row = (
        Gpu.objects.select_for_update(of=("self",))
        .select_related("account", "instance__account", "instance__pool")
        .filter(pk=gpu_id)
        .first()
    )
    if row is None:
        raise NotFound("There is no such GPU.")
    require(actor, "lift", account=row.account, region=row.region, pool=_pool(row))
    if not reason:
        raise Invalid("Say why this hardware may serve again.")
    if row.condemned_at is None:
        raise Closed(f"{row.uuid} is not condemned.")
    payload = {"uuid": row.uuid, "serial": row.serial, "reason": reason, "was": row.condemned_why,
               "since": row.condemned_at.isoformat()}  # fmt: skip
    row.condemned_at, row.condemned_why = None, ""
    row.save(update_fields=["condemned_at", "condemned_why"])
    summary = f"condemnation of {row.uuid} lifted: {reason}"
    record("gpu.lifted", f"gpu:{row.pk}", summary, actor=actor, instance=row.instance, payload=payload)
    alike = Gpu.objects.filter(_hardware(row.account_id, [row.uuid], [row.serial])).exclude(instance=None)
    touch(sorted(set(alike.values_list("instance_id", flat=True))))
    return row


def among(account_id: int, uuids: Iterable[str], serials: Iterable[str]) -> list[Gpu]:
    """Condemned rows of this account with one of the UUIDs or serials."""
    return list(_among(account_id, uuids, serials))


def on(instance: Instance, registered: Iterable[str] = (), gpus: Iterable[Gpu] | None = None) -> dict[str, str]:
    """UUID -> why, of the GPUs of this instance (as its node told, or as ECS registered them) that are condemned.

    `gpus`: those of its own, where they were read already.
    """
    mine = {gpu.uuid: gpu.serial for gpu in (instance.gpus.all() if gpus is None else gpus)}
    mine = {**dict.fromkeys(registered, ""), **mine}
    if not mine:
        return {}
    found = _among(instance.account_id, mine, mine.values()).values_list("uuid", "serial", "condemned_why")
    by_uuid = {uuid: why or "no reason was kept" for uuid, _, why in found}
    by_serial = {serial: by_uuid[uuid] for uuid, serial, _ in found if telling(serial)}
    hits = {uuid: by_uuid.get(uuid) or by_serial.get(serial, "") for uuid, serial in mine.items()}
    return {uuid: why for uuid, why in sorted(hits.items()) if why}


def telling(serial: str) -> bool:
    """Whether a serial names one piece of hardware: boards without one print zeros, dashes or N/A."""
    return len(serial) >= 6 and len(set(serial)) > 2


def _among(account_id: int, uuids: Iterable[str], serials: Iterable[str]) -> QuerySet[Gpu]:
    return Gpu.objects.filter(_hardware(account_id, uuids, serials), condemned_at__isnull=False).order_by("pk")


def _hardware(account_id: int, uuids: Iterable[str], serials: Iterable[str]) -> Q:
    told = sorted({serial for serial in serials if telling(serial)})
    return Q(account=account_id) & (Q(uuid__in=sorted(set(uuids))) | Q(serial__in=told))


def _pool(row: Gpu) -> str:
    pool: Any = row.instance.pool if row.instance else None
    return pool.name if pool else ""

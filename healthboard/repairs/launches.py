"""How the launches of replacements came out. Many failures in a row put a pool into protected mode.

The only writer of `Launch`. A launch counts once, however often it was tried: what is counted is how it ended.
"""

from __future__ import annotations

from django.db import transaction

from healthboard import clock
from healthboard.fleet.models import Instance, Pool
from healthboard.people.actors import WORKER
from healthboard.repairs import brakes, lifecycle
from healthboard.repairs.models import Breaker, Launch, Repair

#: so many launches of a pool in a row that gave no serving replacement open its breaker
IN_A_ROW = 3


@transaction.atomic
def note(repair: Repair, outcome: Launch.Outcome, *, zone: str, why: str = "") -> None:
    """Keep the outcome; said again, only its time moves. The failure that makes too many opens the pool's breaker.
    Raises LostFence for a worker whose claim is over: what it says may be long past."""
    lifecycle.hold(repair)
    _, new = Launch.objects.update_or_create(
        repair=repair, zone=zone[:32], outcome=outcome,
        defaults={
            "pool": repair.pool, "instance_type": repair.instance.instance_type, "why": why[:2000], "at": clock.now(),
        },
    )  # fmt: skip
    if not new or outcome != Launch.Outcome.FAILED or repair.pool is None:
        return
    failed = failed_in_a_row(repair)
    if failed >= IN_A_ROW:
        brakes.open_breaker(
            account=repair.instance.account, region=repair.instance.region, kind="LAUNCH", scope_kind="pool",
            scope=repair.pool.name, why=f"{failed} launches in a row gave no serving replacement; the last: {why}",
            actor=WORKER,
        )  # fmt: skip


def failed_in_a_row(repair: Repair) -> int:
    """Repairs of the pool whose launch failed since one last served, or since a person released the pool."""
    rows = Launch.objects.filter(pool=repair.pool, outcome__in=[Launch.Outcome.SERVED, Launch.Outcome.FAILED])
    released = Breaker.objects.filter(
        account=repair.instance.account, region=repair.instance.region, kind="LAUNCH", scope_kind="pool",
        scope=repair.pool.name, released_at__isnull=False,
    ).order_by("-released_at")  # fmt: skip
    if last := released.first():
        rows = rows.filter(at__gt=last.released_at)
    failed: set[int] = set()
    for repair_id, outcome in rows.order_by("-at", "-pk").values_list("repair_id", "outcome"):
        if outcome == Launch.Outcome.SERVED:
            break
        failed.add(repair_id)
    return len(failed)


def version_that_failed(pool: Pool, template_id: str, version: str) -> str:
    """Why nothing more is launched from this template version by itself, in words; empty where nothing is against it:
    the last launch from it served, or an instance of the pool serves with it."""
    rows = Launch.objects.filter(
        pool=pool, repair__replacement__template_id=template_id, repair__replacement__template_version=version,
        outcome__in=[Launch.Outcome.SERVED, Launch.Outcome.FAILED],
    ).order_by("-at", "-pk")  # fmt: skip
    last = rows.first()
    if last is None or last.outcome == Launch.Outcome.SERVED:
        return ""
    failed = rows.filter(outcome=Launch.Outcome.FAILED).values("repair__replacement")
    others = Instance.objects.filter(pool=pool, gone_at=None, template_id=template_id, template_version=version)
    if any(one.serving for one in others.exclude(pk__in=failed)):
        return ""
    return (
        f"Version {version} of launch template {template_id} gave no serving replacement in repair {last.repair_id}, and "
        "nothing serves with it: choose a version that works, or approve to try it again"
    )

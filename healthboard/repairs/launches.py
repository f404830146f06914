"""How the launches of replacements came out. Many failures in a row put a pool into protected mode.

The only writer of `Launch`. A launch counts once, however often it was tried: what is counted is how it ended.
"""

from __future__ import annotations

from django.db import transaction

from healthboard import clock
from healthboard.people.actors import WORKER
from healthboard.repairs import brakes
from healthboard.repairs.models import Breaker, Launch, Repair

#: so many launches of a pool in a row that gave no serving replacement open its breaker
IN_A_ROW = 3


@transaction.atomic
def note(repair: Repair, outcome: Launch.Outcome, *, zone: str, why: str = "") -> None:
    """Keep the outcome; said again, only its time moves. The failure that makes too many opens the pool's breaker."""
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

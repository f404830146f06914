"""How much of a pool may be out at once. Taken and released under the pool's row lock, in one transaction with the
repair's own move; on SQLite the IMMEDIATE transaction is that lock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Q

from healthboard import clock
from healthboard.fleet.models import Instance, Pool
from healthboard.repairs.models import Occupancy, Repair
from healthboard.repairs.states import OPEN

#: actions that take nothing out of service
FREE = ("DIAGNOSE", "RETURN")


@dataclass(frozen=True, slots=True)
class Usage:
    size: int
    allowed: int
    ours: tuple[str, ...]  # instance ids under repair that hold a unit
    others: tuple[str, ...]  # out for other reasons
    serving: int = 0  # in service and under no repair

    @property
    def out(self) -> int:
        return len(self.ours) + len(self.others)

    @property
    def left(self) -> int:
        return max(self.allowed - self.out, 0)


def allowed_out(size: int, values: dict[str, Any]) -> int:
    """Units that may be out in a pool of `size`: as ECS, one below nine, else the share rounded down."""
    by_share = 1 if size < 9 else int(float(values.get("budget_share", 0.2)) * size)
    limits = [by_share, size - int(values.get("minimum_healthy") or 0)]
    if values.get("budget_absolute") is not None:
        limits.append(int(values["budget_absolute"]))
    return max(min(limits), 0)


def usage(pool: Pool, values: dict[str, Any]) -> Usage:
    open_repairs = list(
        Repair.objects.filter(pool=pool, state__in=OPEN).values_list("pk", "instance_id", "replacement_id", "facts")
    )
    held = dict(Occupancy.objects.filter(pool=pool, released_at=None).values_list("repair__instance_id", "units"))
    replacements = {r[2] for r in open_repairs if r[2]}
    members = Instance.objects.filter(pool=pool, gone_at=None).exclude(
        state__in=["terminated", "shutting-down"], container_arn=""
    )
    ours, others, registered, serving = [], [], 0, 0
    for row in members:
        if row.pk in replacements:
            continue
        registered += 1
        if row.pk in held:  # one unit from take to release, also of one that was out before
            ours.append(row.instance_id)
        elif not row.serving:
            others.append(row.instance_id)
        else:
            serving += 1
    missing = set(held) - {m.pk for m in members}
    ours += list(Instance.objects.filter(pk__in=missing).values_list("instance_id", flat=True))
    if pool.kind == Pool.Kind.GROUP and pool.desired is not None:
        size = pool.desired + sum(1 for r in open_repairs if r[3].get("decremented"))
    else:
        size = registered
    return Usage(size, allowed_out(size, values), tuple(ours), tuple(others), serving)


def take(repair: Repair, values: dict[str, Any]) -> str | None:
    """Take a unit for `repair`, or return why not, in words. Call inside the transaction that starts the repair."""
    if repair.action in FREE or repair.pool_id is None:
        return None
    if Occupancy.objects.filter(repair=repair, released_at=None).exists():
        return None
    pool = Pool.objects.select_for_update(no_key=True).get(pk=repair.pool_id)
    now = clock.now()
    seen = usage(pool, values)
    instance = repair.instance
    running = Occupancy.objects.filter(pool=pool, released_at=None)
    already_out = instance.instance_id in seen.others
    if already_out and (seen.out <= seen.allowed or not running.exists()):
        units, note = 0, "it was out already"
    elif not already_out and seen.out + 1 <= seen.allowed:
        units, note = 1, ""
    else:
        names = ", ".join((*seen.ours, *seen.others)[:6])
        return f"Budget of {pool.name}: {seen.out} of {seen.allowed} allowed are out ({names})"
    floor = int(values.get("minimum_healthy") or 0)
    if units and seen.serving - 1 < floor:  # also where members are missing altogether, which are nobody's out
        return f"Keep serving: {seen.serving} instances of {pool.name} serve, and {floor} must stay"
    if values.get("one_zone_at_a_time"):
        zones = set(running.values_list("repair__instance__zone", flat=True)) - {instance.zone}
        if zones:
            return f"One zone at a time: a repair is running in {', '.join(sorted(zones))}"
    per_hour = values.get("repairs_per_hour")
    if per_hour is not None:
        recent = Occupancy.objects.filter(pool=pool, taken_at__gt=now - clock.scaled(timedelta(hours=1))).count()
        if recent >= int(per_hour):
            return f"{recent} repairs were started in {pool.name} within the last hour; {per_hour} are allowed"
    Occupancy.objects.create(
        repair=repair, pool=pool, units=units, taken_at=now, size=seen.size, allowed=seen.allowed,
        out_before=seen.out, note=note,
    )  # fmt: skip
    return None


def release(repair: Repair) -> None:
    Occupancy.objects.filter(Q(repair=repair), released_at=None).update(released_at=clock.now())

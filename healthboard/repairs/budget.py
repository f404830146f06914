"""How much of a pool may be out at once. Taken and released under the pool's row lock, in one transaction with the
repair's own move; on SQLite the IMMEDIATE transaction is that lock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from healthboard import clock
from healthboard.fleet.models import Instance, Pool, serves
from healthboard.people import access
from healthboard.repairs.models import Occupancy, Repair
from healthboard.repairs.states import OPEN

#: what two people allow one repair: a unit more than may be out
OVER = "over_budget"
#: how it begins what a repair waits for: the budget, which two people may pass, or another repair, where its machine is
#: out already and takes no unit
FULL, OUT_ALREADY = "Budget of", "Out already"
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
    return usages([(pool, values)])[pool.pk]


def usages(of: Iterable[tuple[Pool, dict[str, Any]]]) -> dict[int, Usage]:
    """The same for several pools with their settings, by the pool's id, in as many queries as for one."""
    wanted = list(of)
    pks = [pool.pk for pool, _ in wanted]
    under_repair: dict[int, list[Any]] = {pk: [] for pk in pks}
    for row in Repair.objects.filter(pool__in=pks, state__in=OPEN).values_list("pool_id", "replacement_id", "facts"):
        under_repair[row[0]].append(row[1:])
    held: dict[int, set[int]] = {pk: set() for pk in pks}
    taken = Occupancy.objects.filter(pool__in=pks, released_at=None)
    for pool_id, instance_id in taken.values_list("pool_id", "repair__instance_id"):
        held[pool_id].add(instance_id)
    members: dict[int, list[tuple[int, str, bool]]] = {pk: [] for pk in pks}
    rows = Instance.objects.filter(pool__in=pks, gone_at=None).exclude(
        state__in=["terminated", "shutting-down"], container_arn=""
    )
    columns = ("pool_id", "pk", "instance_id", "state", "ecs_status", "agent_connected")  # no models: it may be 10,000
    for pool_id, pk, instance_id, *condition in rows.values_list(*columns):
        members[pool_id].append((pk, instance_id, serves(*condition)))
    away = {pk: held[pk] - {one for one, *_ in members[pk]} for pk in pks}
    known = Instance.objects.filter(pk__in=set().union(*away.values())) if any(away.values()) else None
    names = dict(known.values_list("pk", "instance_id")) if known is not None else {}
    return {
        pool.pk: _usage(
            pool, values, under_repair[pool.pk], held[pool.pk], members[pool.pk], [names[pk] for pk in sorted(away[pool.pk])]
        )
        for pool, values in wanted
    }  # fmt: skip


def _usage(
    pool: Pool, values: dict[str, Any], under_repair: list[Any], held: set[int], members: list[tuple[int, str, bool]],
    away: list[str],
) -> Usage:  # fmt: skip
    replacements = {replacement for replacement, _ in under_repair if replacement}
    ours, others, registered, serving = [], [], 0, 0
    for pk, instance_id, in_service in members:
        if pk in replacements:
            continue
        registered += 1
        if pk in held:  # one unit from take to release, also of one that was out before
            ours.append(instance_id)
        elif not in_service:
            others.append(instance_id)
        else:
            serving += 1
    size = _size(pool, registered, [facts for _, facts in under_repair])
    return Usage(size, allowed_out(size, values), (*ours, *away), tuple(others), serving)


def _size(pool: Pool, registered: int, facts: list[dict[str, Any]]) -> int:
    """The group's desired capacity, with the places that repairs took off it to step aside: no more than it was before
    them, for a round of collecting may show the number from before or after. Without a group, the registered instances."""
    if pool.kind != Pool.Kind.GROUP or pool.desired is None:
        return registered
    before = [told.get("desired_before") or 0 for told in facts if told.get("decremented")]
    return max(pool.desired, min(pool.desired + len(before), max(before, default=0)))


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
    elif not already_out and (over := _over(repair, seen, running, values)) == "":
        units, note = 1, OVER
    else:
        names = ", ".join((*seen.ours, *seen.others)[:6])
        out = f"{seen.out} of {seen.allowed} allowed are out ({names})"
        if already_out:
            return f"{OUT_ALREADY}: of {pool.name} {out}, and until no other repair runs there none begins on such a machine"
        return f"{FULL} {pool.name}: {out}{f'; two people allowed one more, but {over}' if over else ''}"
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


def _over(repair: Repair, seen: Usage, running: Any, values: dict[str, Any]) -> str | None:
    """Empty where two people let this repair take one unit more; None where nobody did; else what bounds it all the same."""
    if OVER not in repair.allowed:
        return None
    told = repair.facts.get(OVER) or {}
    if not told or clock.now() >= datetime.fromisoformat(told["until"]):
        return "that was not used in time"
    instance = repair.instance
    place = {"account": instance.account, "region": instance.region, "pool": repair.pool.name}
    if gone := access.withdrawn(told["words"], **place):
        return gone.rstrip(".")
    if running.filter(note=OVER).exists():
        return "another repair runs over the budget already"
    if seen.out > seen.allowed:
        return "more are out than the budget allows as it is"
    if values.get("budget_absolute") is not None and seen.out + 1 > int(values["budget_absolute"]):
        return f"the policy's absolute number ({values['budget_absolute']}) is never passed"
    if seen.serving - 1 < 1:
        return "it is the last one that serves"
    return ""


def release(repair: Repair) -> bool:
    """Whether it held a unit."""
    return bool(Occupancy.objects.filter(Q(repair=repair), released_at=None).update(released_at=clock.now()))


def give_back(repair: Repair) -> bool:
    """Of one that was put off before it changed anything: its unit was never out, and is taken anew when it starts.
    Whether it held one."""
    return bool(Occupancy.objects.filter(repair=repair).delete()[0])

"""Many instances at once: one case for all, whose breaker holds its members until a person releases it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction

from healthboard.audit.record import digest
from healthboard.cases import lifecycle, telling
from healthboard.cases.models import Case
from healthboard.cases.states import OPEN, Resolution, State
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet.models import Account, Instance
from healthboard.people import second
from healthboard.people.actors import WORKER, Actor
from healthboard.repairs import brakes
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.states import State as RepairState

#: why a storm of what opens no case by itself holds nothing
SOFT = "Nothing is repaired for this code, so nothing is held: what they have in common deserves a look"


def hold(
    *,
    account: Any,
    region: str,
    scope: tuple[str, str],
    code: str,
    why: str,
    members: list[Case],
    victims: Iterable[str] = (),
    part_of: Case | None = None,
    actor: Actor = WORKER,
) -> Case:
    """One CORRELATED case for all members, and the breaker of the scope that holds them. `victims` are instances that
    are part of it and have no case of their own; `part_of` is the open case that holds others of the same instances
    already: the storm has spread, and stays one case, which then holds both scopes.

    The group is committed first and each member joins in a transaction of its own, which locks the member before the
    group as a member's own reading does.
    """
    group = _group_of(account, region, scope, code, why, members, sorted(victims), part_of, actor)
    for case in members:
        with transaction.atomic():
            join(case, group, actor)
    return group


@transaction.atomic
def _group_of(
    account: Any, region: str, scope: tuple[str, str], code: str, why: str, members: list[Case], victims: list[str],
    part_of: Case | None, actor: Actor,
) -> Case:  # fmt: skip
    kind, value = scope
    breaker = brakes.open_breaker(
        account=account, region=region, kind="CORRELATED", scope_kind=kind, scope=value, why=why, actor=actor
    )
    group = holding(breaker.pk)
    if group is None and part_of is not None:
        spread = Case.objects.select_for_update().get(pk=part_of.pk)
        if spread.open and spread.breaker_id:
            return _spread(spread, breaker, why, members, actor)
    if group is None:
        group = lifecycle.create(
            account=account, region=region, breaker=breaker, state=State.WAITING, verdict=Verdict.CORRELATED,
            action="HOLD", mode="ask", code=code or "CORRELATED", codes=[code] if code else [],
            title=_title(len(victims) or len(members), scope, code), why=why, victims=victims, why_waiting="Automatic repair in this scope stops until a person releases it",
            evidence_hash=digest([scope, code]),
            plan={"sentence": "Nothing is repaired in this scope until it is released. Releasing makes each member a "
                  "case of its own, repaired under the budget.", "action": "HOLD"},
        )  # fmt: skip
        lifecycle.audit(
            group, "case.opened", f"{group.title}: {why}", actor,
            members=[c.instance.instance_id for c in members] or victims,
        )  # fmt: skip
        telling.tell(group, "breaker", key=f"correlated-{group.pk}", subject=group.title, body=why)
    elif new := sorted(set(victims) - set(group.victims)):
        lifecycle.write(group, victims=sorted({*victims, *group.victims}))
        lifecycle.audit(group, "case.victims", f"{len(new)} more instances are part of it", actor, victims=new)
    return group


def _spread(group: Case, breaker: Any, why: str, members: list[Case], actor: Actor) -> Case:
    """The storm goes beyond the scope that it was seen in first: the case holds the new scope's breaker as well."""
    also = group.plan.get("also", [])
    if breaker.pk not in [one["id"] for one in also]:
        also = [*also, {"id": breaker.pk, "where": breaker.where, "why": why}]
        title = f"{group.title}, spread to {breaker.where}"[:255]
        lifecycle.write(group, title=title, plan={**group.plan, "also": also}, plan_version=group.plan_version + 1)
        _grown(group, f"it has spread to {breaker.where}: ask anew", actor)
        lifecycle.audit(group, "case.spread", f"it has spread: {breaker.where} is held as well: {why}", actor,
                        members=[c.instance.instance_id for c in members], breaker=breaker.pk)  # fmt: skip
        telling.tell(
            group, "breaker", key=f"correlated-{group.pk}-{breaker.pk}", body=why,
            subject=f"It has spread to {breaker.where}: {group.title}",
        )  # fmt: skip
    return group


def holding(breaker_id: int) -> Case | None:
    """The open case that a breaker belongs to, be it of the scope that it was seen in first or of one it spread to."""
    return holdings().get(breaker_id)


def holdings() -> dict[int, Case]:
    """The same for every breaker that an open case holds by."""
    open_groups = Case.objects.filter(instance=None, state__in=OPEN).exclude(breaker=None).order_by("-pk")
    return {pk: group for group in open_groups for pk in breakers_of(group)}


def breakers_of(group: Case) -> list[int]:
    """Every breaker that releasing this case releases: of the scope that it was seen in first, and of those that it
    has spread to."""
    return [pk for pk in (group.breaker_id, *(one["id"] for one in group.plan.get("also", []))) if pk]


def extent(group: Case) -> str:
    """Names what releasing this case would release: its breakers and whatever it has held so far."""
    return digest([sorted(breakers_of(group)), sorted(group.members.values_list("pk", flat=True))])


def _grown(group: Case, why: str, actor: Actor) -> None:
    """A release that was asked for before would now release more than was seen: it can be asked for anew at once."""
    second.drop(f"case:{group.pk}", why, actor=actor)


@transaction.atomic
def observe(
    *, account_id: int, region: str, scope: tuple[str, str], code: str, why: str, instances: Iterable[str],
    actor: Actor = WORKER,
) -> Case:  # fmt: skip
    """One case for a storm of what nothing would be repaired for: no breaker, nothing is held. Its instances stand in
    `victims`. A storm that goes on, or spreads, stays the same case."""
    Account.objects.select_for_update(no_key=True).get(pk=account_id)  # two looks at once must not open two
    members = sorted(instances)
    same = [s for s in storms() if (s.account_id, s.region, s.code) == (account_id, region, code)]
    storm = next((s for s in same if s.plan.get("scope") == list(scope) or set(s.victims) & set(members)), None)
    if storm is None:
        return _open_storm(account_id, region, scope, code, why, members, actor)
    if new := sorted(set(members) - set(storm.victims)):
        every = sorted({*members, *storm.victims})
        lifecycle.write(storm, victims=every, why=why, title=_title(len(every), scope, code))
        lifecycle.audit(storm, "case.victims", f"{len(new)} more instances show {code}", actor, victims=new)
    return storm


def storms() -> list[Case]:
    """Open cases of storms that hold nothing."""
    return list(Case.objects.filter(instance=None, breaker=None, state__in=OPEN).order_by("pk"))


def over(storm_id: int, note: str, actor: Actor = WORKER) -> None:
    """The storm has ended by itself."""
    with transaction.atomic():
        storm = Case.objects.select_for_update().get(pk=storm_id)
        if storm.open:
            lifecycle.close(storm, Resolution.CLEARED, note, actor)


def _open_storm(
    account_id: int, region: str, scope: tuple[str, str], code: str, why: str, members: list[str], actor: Actor
) -> Case:
    pools = set(
        Instance.objects.filter(account_id=account_id, region=region, instance_id__in=members).values_list(
            "pool", flat=True
        )
    )
    storm = lifecycle.create(
        account_id=account_id, region=region, pool_id=pools.pop() if len(pools) == 1 else None, state=State.OBSERVED,
        verdict=Verdict.CORRELATED, action="HOLD", mode="observe", mode_why=SOFT, code=code, codes=[code],
        title=_title(len(members), scope, code), why=why, victims=members, evidence_hash=digest([list(scope), code]),
        plan={"sentence": f"{SOFT}. It closes by itself when it is over.", "action": "HOLD", "scope": list(scope)},
    )  # fmt: skip
    lifecycle.audit(storm, "case.opened", f"{storm.title}: {why}", actor, members=members)
    telling.tell(storm, "storm", key=f"storm-{storm.pk}", subject=storm.title, body=why)
    return storm


def _title(count: int, scope: tuple[str, str], code: str) -> str:
    title = f"{count} instances of {scope[0].replace('_', ' ')} {scope[1]}" + (f" show {code}" if code else "")
    return title[:255]


def _counted(title: str, count: int) -> str:
    """The title of a group that has grown: never fewer than it named before."""
    number, _, rest = title.partition(" ")
    return f"{max(int(number), count)} {rest}" if number.isdecimal() else title


def name_victims(case: Case, victims: list[str], actor: Actor) -> None:
    """The mates of its job that show only aftermath: named on the root's case, and nothing is done to them."""
    lifecycle.write(case, victims=victims)
    lifecycle.audit(case, "case.victims", f"{len(victims)} mates show only aftermath", actor, victims=victims)


def join(case: Case, group: Case, actor: Actor) -> None:
    """Hold a case under a correlated one; what was scheduled for it and has not started is cancelled."""
    case = Case.objects.select_for_update().get(pk=case.pk)
    if case.state in (State.CLOSED, State.HELD):
        return
    for decision in case.decisions.filter(repair__state=RepairState.SCHEDULED).select_related("repair"):
        if repairs.cancel_scheduled(decision.repair_id, actor=actor, why=f"held by case {group.pk}"):
            lifecycle.outcome_of(decision, "REFUSED", f"held by case {group.pk}")
            repairs.told(decision.repair_id)
    if case.decisions.filter(repair__state__in=[RepairState.RUNNING, RepairState.ASKING]).exists():
        return  # already under way: its next changing call meets the breaker
    lifecycle.move(case, State.HELD, actor, f"held by correlated case {group.pk}")
    lifecycle.write(case, parent=group, expires_at=None, why_waiting=f"held: {group.title}")
    lifecycle.write(group, title=_counted(group.title, group.members.count()))
    _grown(group, f"{case.title} is held as well: ask anew", actor)
    telling.follow(
        case, "case_held", key=f"case-held-{case.pk}-{group.pk}", subject=f"{case.title}: held by case {group.pk}"
    )

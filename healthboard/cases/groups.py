"""Many instances at once: one case for all, whose breaker holds its members until a person releases it."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from healthboard.audit.record import digest
from healthboard.cases import lifecycle
from healthboard.cases.models import Case
from healthboard.cases.states import OPEN, State
from healthboard.diagnosis.signals import Verdict
from healthboard.notices.outbox import announce
from healthboard.people.actors import WORKER, Actor
from healthboard.repairs import brakes
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.states import State as RepairState


def hold(
    *,
    account: Any,
    region: str,
    scope: tuple[str, str],
    code: str,
    why: str,
    members: list[Case],
    actor: Actor = WORKER,
) -> Case:
    """One CORRELATED case for all members, and the breaker of the scope that holds them.

    The group is committed first and each member joins in a transaction of its own, which locks the member before the
    group as a member's own reading does.
    """
    group = _group_of(account, region, scope, code, why, members, actor)
    for case in members:
        with transaction.atomic():
            join(case, group, actor)
    return group


@transaction.atomic
def _group_of(
    account: Any, region: str, scope: tuple[str, str], code: str, why: str, members: list[Case], actor: Actor
) -> Case:
    kind, value = scope
    breaker = brakes.open_breaker(
        account=account, region=region, kind="CORRELATED", scope_kind=kind, scope=value, why=why, actor=actor
    )
    group = breaker.cases.filter(instance=None, state__in=OPEN).first()
    if group is None:
        title = f"{len(members)} instances of {kind.replace('_', ' ')} {value}" + (f" show {code}" if code else "")
        group = lifecycle.create(
            account=account, region=region, breaker=breaker, state=State.WAITING, verdict=Verdict.CORRELATED,
            action="HOLD", mode="ask", code=code or "CORRELATED", codes=[code] if code else [], title=title[:255],
            why=why, why_waiting="Automatic repair in this scope stops until a person releases it",
            evidence_hash=digest([scope, code]),
            plan={"sentence": "Nothing is repaired in this scope until it is released. Releasing makes each member a "
                  "case of its own, repaired under the budget.", "action": "HOLD"},
        )  # fmt: skip
        lifecycle.audit(
            group, "case.opened", f"{group.title}: {why}", actor, members=[c.instance.instance_id for c in members]
        )
        announce(key=f"correlated-{group.pk}", kind="breaker", to="operators", subject=group.title, body=why,
                 link=f"/cases/{group.pk}/")  # fmt: skip
    return group


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
    lifecycle.write(group, touch=True)

"""What a person asks for by hand: drain, return, reboot, replace … of one instance.

There is one way in, `answers.decide`. An instance with an open case is decided there; any other gets a case of its own
first, opened by the one who asks, with the plan that was shown. See docs/decisions/0040.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction

from healthboard import clock, words
from healthboard.audit.record import digest
from healthboard.cases import answers, evidence, lifecycle, telling
from healthboard.cases import plan as plans
from healthboard.cases.judge import Judgement, judge, untouchable
from healthboard.cases.models import BY_HAND, Case, Decision
from healthboard.cases.states import Resolution, State
from healthboard.fleet.models import Instance
from healthboard.people.access import require, why_not
from healthboard.people.actors import Actor
from healthboard.policies.reading import Reread, reread
from healthboard.refusals import AlreadyDecided, Changed, Closed, Invalid, NotFound, Refusal
from healthboard.repairs.models import Repair
from healthboard.repairs.recipes import recipe
from healthboard.repairs.states import OPEN

ACTIONS = ("DRAIN", "RETURN", "REBOOT", "REPLACE", "RELOCATE", "DIAGNOSE")


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be done, as it stands now; `seen` names it, and is posted back with the ask."""

    plan: dict[str, Any]
    seen: str
    case: Case | None  # the open case that the ask would answer
    reading: Reread
    judged: Judgement


def buttons(instance: Instance, user: Any) -> list[dict[str, Any]]:
    """The actions that this owner's instances know, each with why it cannot be asked for now, or None."""
    why = why_not(user, "by_hand", **_place(instance))
    busy = Repair.objects.filter(instance=instance, state__in=OPEN).first()
    if why is None and instance.gone_at is not None:
        why = "The instance is gone."
    if why is None and busy is not None:
        why = f"It is under repair already: {words.action(busy.action).lower()}, repair {busy.pk}."
    return [
        {"action": action, "title": words.action(action), "why_not": why or _against(instance, action)}
        for action in ACTIONS
        if recipe(action, instance.owner)
    ]


def _against(instance: Instance, action: str) -> str | None:
    if action != "DIAGNOSE" and (why := untouchable(instance, action)):
        return f"Nothing is done here: {why}."
    if action == "RETURN" and instance.ecs_status == "ACTIVE":
        return "ECS shows it as ACTIVE: it is in service."
    if action == "DRAIN" and instance.ecs_status == "DRAINING":
        return "ECS shows it as DRAINING already."
    return None


def offer(instance: Instance, action: str) -> Offer:
    """The plan of one action on one instance, from a fresh reading. Raises NotFound or Closed."""
    if action not in ACTIONS or not recipe(action, instance.owner):
        raise NotFound(f"There is no action {action} for this instance.")
    if instance.gone_at is not None:
        raise Closed("The instance is gone.")
    seen = reread(instance)
    judged = judge(instance, seen)
    plan = plans.build(instance, judged, seen.policy.values, action)
    case = lifecycle.open_case_of(instance)
    known = [case.pk, case.plan_version, case.evidence_hash] if case else []
    name = digest({"plan": plans.material(plan), "evidence": evidence.evidence_hash(seen.assessment), "case": known})
    return Offer(plan, name, case, seen, judged)


def ask(instance_id: int, *, actor: Actor, action: str, reason: str, seen: str) -> Decision:
    """Ask for the action that was shown as `seen`. Raises a `Refusal`; what was refused is on record."""
    if not (reason := (reason or "").strip()):
        raise Invalid("Say why: the next person will want to know.")
    with transaction.atomic():
        instance = Instance.objects.select_for_update(of=("self",), no_key=True).filter(pk=instance_id).first()
        if instance is None:
            raise NotFound("There is no such instance.")
        require(actor, "by_hand", **_place(instance))
        shown = offer(instance, action)
        if shown.seen != seen:
            raise Changed("It changed since you saw it: look again, then ask.")
        if busy := Repair.objects.filter(instance=instance, state__in=OPEN).first():
            raise AlreadyDecided(f"It is under repair already: see repair {busy.pk}.", repair=busy.pk)
        case = shown.case or _open(instance, shown, actor, action, reason)
    kind = "approve" if action == case.action else "override"
    try:
        decision = answers.decide(
            case.pk, actor=actor, kind=kind, action=action, reason=reason, plan_version=case.plan_version,
            evidence_hash=case.evidence_hash,
        )  # fmt: skip
    except Refusal as refusal:
        if shown.case is None:
            _withdraw(case.pk, actor, refusal.message)
        raise
    if decision.outcome == "PENDING" and shown.case is None:
        _ask_others(case, decision, reason, shown.reading.policy.values)
    return decision


def _open(instance: Instance, shown: Offer, actor: Actor, action: str, reason: str) -> Case:
    a, values = shown.reading.assessment, shown.reading.policy.values
    title = f"{words.action(action)} {instance}: asked for by {actor.name}"
    case = lifecycle.create(
        account=instance.account, region=instance.region, instance=instance, pool=instance.pool, state=State.WAITING,
        verdict=str(a.verdict), action=action, mode="ask", mode_why=f"asked for by {actor.name}", code=BY_HAND,
        codes=[BY_HAND], title=title[:255], why=reason, plan=shown.plan, evidence_hash=evidence.evidence_hash(a),
        policy_version=shown.reading.policy.version,
        expires_at=clock.now() + timedelta(seconds=float(values["expiry_s"])),
    )  # fmt: skip
    case.workloads.set(shown.reading.workloads)
    evidence.keep(case, shown.reading, shown.judged)
    lifecycle.audit(case, "case.opened", f"{title}: {reason}", actor, action=action)
    return case


@transaction.atomic
def _ask_others(case: Case, decision: Decision, reason: str, values: dict[str, Any]) -> None:
    telling.tell(
        case, "case_waiting", key=f"case-second-{decision.pk}", subject=f"{case.title}: wants a second person",
        body=reason, to=values["notify"],
    )  # fmt: skip


@transaction.atomic
def _withdraw(case_id: int, actor: Actor, why: str) -> None:
    case = Case.objects.select_for_update().get(pk=case_id)
    if case.state == State.WAITING and case.by_hand:
        lifecycle.close(case, Resolution.WITHDRAWN, why, actor)


def _place(instance: Instance) -> dict[str, Any]:
    pool = instance.pool.name if instance.pool else ""
    return {"account": instance.account, "region": instance.region, "pool": pool}

"""The only writer of cases, evidence and decisions: what evidence, time and the end of a repair do to a case.

What people do is in `cases.answers`; both move a case through `move` alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.db import transaction

from healthboard import clock
from healthboard.audit.record import digest, record
from healthboard.cases import plan as plans
from healthboard.cases.judge import Judgement, judge
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.cases.states import MOVES, OPEN, Resolution, State
from healthboard.diagnosis.signals import Assessment, Verdict
from healthboard.fleet.evidence import freeze
from healthboard.fleet.models import Instance, Owner
from healthboard.notices.outbox import announce
from healthboard.people.actors import CLOCK, EVIDENCE, POLICY, WORKER, Actor
from healthboard.policies.reading import BAD, GOOD, Reread
from healthboard.repairs import brakes
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.models import Repair
from healthboard.repairs.states import OPEN as REPAIR_OPEN
from healthboard.repairs.states import State as RepairState
from healthboard.wake import wake


class IllegalMove(Exception):
    """The state table does not know this move."""


def evidence_hash(a: Assessment) -> str:
    """Of what a decision rests on: verdict, action, and which codes on which GPUs; not of counts or ages."""
    return digest(
        {
            "verdict": str(a.verdict),
            "action": str(a.action),
            "codes": sorted({(f.code, f.gpu or "") for f in a.findings if f.verdict in BAD}),
        }
    )


# --- evidence -------------------------------------------------------------------------------------------------------


@transaction.atomic
def apply_reading(instance: Instance, seen: Reread) -> Case | None:
    """What a new reading means: open, escalate in place, resolve by itself, or nothing."""
    case = open_case_of(instance, lock=True)
    a = seen.assessment
    if instance.gone_at is not None:
        return _instance_gone(case, instance) if case else None
    if a.verdict in BAD:
        if case is None:
            return None if _answered_before(instance, a) else _open(instance, seen)
        return _update(case, instance, seen)
    if a.verdict == Verdict.WORKLOAD:
        _tell_workload(instance, seen)
    if case is not None and a.verdict in GOOD:
        _clearing(case, instance, seen)
    elif case is not None and case.clear_since is not None:
        _write(case, clear_since=None)  # good means without a break: what could not be seen was not good
    return case


def open_case_of(instance: Instance, *, lock: bool = False) -> Case | None:
    rows = Case.objects.select_for_update() if lock else Case.objects
    return rows.filter(instance=instance, state__in=OPEN).first()


def _open(instance: Instance, seen: Reread) -> Case:
    a, now = seen.assessment, clock.now()
    judged = judge(instance, seen)
    case = Case.objects.create(
        account=instance.account, region=instance.region, instance=instance, pool=instance.pool,
        state=State.OBSERVED if judged.mode == "observe" else State.WAITING,
        opened_at=now, changed_at=now, evidence_at=now, evidence_hash=evidence_hash(a),
        **_reading_fields(instance, seen, judged), plan=plans.build(instance, judged, seen.policy.values),
    )  # fmt: skip
    case.workloads.set(seen.workloads)
    _keep_evidence(case, seen)
    _audit(case, "case.opened", f"{case.title}: {case.why}", EVIDENCE, verdict=case.verdict, codes=case.codes)
    _route(case, instance, seen, judged)
    return case


def _update(case: Case, instance: Instance, seen: Reread) -> Case:
    a = seen.assessment
    judged = judge(instance, seen)
    new_hash = evidence_hash(a)
    worse = case.verdict != Verdict.HARDWARE and a.verdict == Verdict.HARDWARE
    fields = {**_reading_fields(instance, seen, judged), "clear_since": None}
    fresh = plans.build(instance, judged, seen.policy.values)
    if case.state == State.DECIDED:
        # the decision stands on what it was shown; the repair checks again by itself before it acts
        fields = {k: fields[k] for k in ("verdict", "code", "codes", "gpu", "title", "why", "may_act", "clear_since")}
        fields["evidence_hash"] = new_hash
        fresh = case.plan
    changes = _changes(case, fields, fresh)
    if new_hash != case.evidence_hash:
        _keep_evidence(case, seen)
        changes.append("the evidence")
    if case.state != State.DECIDED:
        _renew_plan(case, fields, fresh, new_hash, changes)
    _write(case, **fields, touch=bool(changes))
    if changes:
        verb = "case.escalated" if worse else "case.evidence"
        _audit(case, verb, f"{case.title}: changed {', '.join(changes)}", EVIDENCE, codes=case.codes)
    if case.state == State.SNOOZED and worse:
        _move(case, State.WAITING, EVIDENCE, "woken: the evidence got worse")
    _route(case, instance, seen, judged)
    return case


def _renew_plan(case: Case, fields: dict[str, Any], fresh: dict[str, Any], new_hash: str, changes: list[str]) -> None:
    """A plan that differs in what an approval rests on gets a new version, with what changed in words."""
    history = case.plan.get("changed", [])
    if new_hash != case.evidence_hash or plans.material(fresh) != plans.material(case.plan):
        fields["plan_version"] = case.plan_version + 1
        history = [*history, {"version": case.plan_version + 1, "what": changes}][-10:]
    fields |= {"plan": {**fresh, "changed": history}, "evidence_hash": new_hash}


def _reading_fields(instance: Instance, seen: Reread, judged: Judgement) -> dict[str, Any]:
    a = seen.assessment
    primary = a.primary or (a.findings[0] if a.findings else None)
    code = primary.code if primary else str(a.verdict)
    gpu = (primary.gpu if primary else None) or ""
    index = instance.gpus.filter(uuid=gpu).values_list("index", flat=True).first() if gpu else None
    where = f" on GPU {index}" if index is not None else (f" on GPU {gpu}" if gpu else "")
    return {
        "verdict": str(a.verdict), "action": judged.action, "mode": judged.mode, "mode_why": judged.why,
        "may_act": a.may_act, "code": code, "codes": list(a.codes), "gpu": gpu,
        "title": f"{code}{where} of {instance}"[:255],
        "why": (primary.why if primary else a.why) or a.why, "policy_version": seen.policy.version,
    }  # fmt: skip


def _changes(case: Case, fields: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    changes = []
    for name, words in (("verdict", "verdict"), ("action", "action"), ("mode", "mode")):
        if getattr(case, name) != fields.get(name, getattr(case, name)):
            changes.append(f"{words} {getattr(case, name)} → {fields[name]}")
    if case.code != fields["code"]:
        changes.append(f"decisive code {case.code} → {fields['code']}")
    elif set(case.codes) != set(fields["codes"]):
        changes.append(f"codes {', '.join(case.codes)} → {', '.join(fields['codes'])}")
    if case.plan.get("blockers") != fresh.get("blockers"):
        changes.append("what stands against the plan")
    return changes


def _keep_evidence(case: Case, seen: Reread) -> None:
    a = json.loads(json.dumps(asdict(seen.assessment) | {"codes": seen.assessment.codes}, default=str))
    Evidence.objects.create(
        case=case, at=seen.at, hash=evidence_hash(seen.assessment), verdict=str(seen.assessment.verdict),
        inputs=freeze(seen.events, seen.readings, seen.context, thresholds=seen.thresholds, now=seen.at), assessment=a,
    )  # fmt: skip


def _route(case: Case, instance: Instance, seen: Reread, judged: Judgement) -> None:
    """Where an open, undecided case stands now: decided by policy, held, observed, or waiting for a person."""
    if case.state in (State.DECIDED, State.SNOOZED, State.CLOSED):
        return
    names = [w.name for w in seen.workloads]
    breaker = next((b for b in brakes.breakers_for(instance, names) if b.kind == "CORRELATED"), None)
    if breaker and judged.mode != "observe" and (group := breaker.cases.filter(instance=None).first()):
        if case.state != State.HELD:
            join_group(case, group, WORKER)
        return
    if judged.mode == "observe":
        if case.state != State.OBSERVED:
            _move(case, State.OBSERVED, POLICY, judged.why)
        return _waits(case, judged.why)
    if judged.mode == "auto" and not (stopped := _stopped_by_person(case)):
        return _decide_by_policy(case, instance, seen, judged)
    if case.state != State.WAITING:
        _move(case, State.WAITING, POLICY, judged.why)
    reason = stopped if judged.mode == "auto" else judged.why
    _waits(case, reason if case.may_act else "; ".join(filter(None, (reason, seen.assessment.may_act_why))))
    _expect_answer(case, seen.policy.values)


def _stopped_by_person(case: Case) -> str:
    """After a person undid, or after a repair did not help, nothing is decided by itself again."""
    last = case.decisions.filter(at__gte=case.evidence_at).order_by("-at", "-pk").first()
    if last is None:
        return ""
    if last.undone_at is not None:
        return f"{last.undone_by} took the last decision back"
    if last.outcome == "REFUSED" or case.tries:
        return last.outcome_why or "the last repair did not help"
    return ""


def _decide_by_policy(case: Case, instance: Instance, seen: Reread, judged: Judgement) -> None:
    now = clock.now()
    row = Repair.objects.filter(instance=instance, state__in=REPAIR_OPEN).first()
    if row is not None:
        return _waits(case, f"a repair is under way already ({row.action.lower()})")
    plan = plans.build(instance, judged, seen.policy.values)
    # one full collection round, so that breadth is seen before anything starts
    round_s = max(clock.scaled(60).total_seconds(), 5.0)
    repair = repairs.open_repair(
        instance=instance, action=judged.action, actor=POLICY, values=dict(seen.policy.values),
        not_before=now + timedelta(seconds=round_s * 1.5), policy_version=seen.policy.version, plan=plan,
        watch=judged.watch,
    )  # fmt: skip
    Decision.objects.create(
        case=case, kind=Decision.Kind.AUTO, action=judged.action, reason=judged.why, actor=POLICY.name, via="policy",
        plan_version=case.plan_version, evidence_hash=case.evidence_hash, policy_version=seen.policy.version, at=now,
        outcome="DONE", repair=repair,
    )  # fmt: skip
    _audit(case, "case.decided", f"{judged.action} by policy: {judged.why}", POLICY, repair_id=repair.pk)
    _move(case, State.DECIDED, POLICY, f"{judged.action} by policy")
    _write(case, plan=plan, expires_at=None, why_waiting="", action=judged.action)


def _waits(case: Case, why: str) -> None:
    if case.why_waiting != why:
        _write(case, why_waiting=why)


def _expect_answer(case: Case, values: dict[str, Any]) -> None:
    if case.expires_at is None:
        _write(case, expires_at=clock.now() + timedelta(seconds=float(values["expiry_s"])))
        announce(
            key=f"case-waiting-{case.pk}-{case.plan_version}", kind="case_waiting", to="operators",
            subject=f"{case.title}: {case.action.lower()}?", body=case.why, link=f"/cases/{case.pk}/",
        )  # fmt: skip


def _answered_before(instance: Instance, a: Assessment) -> bool:
    """True where a person dismissed exactly this and nothing new has happened since."""
    last = Case.objects.filter(instance=instance, state=State.CLOSED).order_by("-closed_at").first()
    if last is None or last.resolution != Resolution.DISMISSED:
        return False
    known = {(f.get("code"), f.get("gpu")) for e in last.evidence.all() for f in e.assessment.get("findings", [])}
    worse = a.verdict == Verdict.HARDWARE and last.verdict != Verdict.HARDWARE
    decisive = [f for f in a.findings if f.verdict in BAD]
    fresh = [f for f in decisive if (f.code, f.gpu) not in known or _since_then(f, last.closed_at)]
    return not worse and not fresh


def _since_then(finding: Any, closed_at: Any) -> bool:
    """It happened again, or a condition that had ended began anew."""
    event = finding.code.startswith(("XID_", "SXID_"))
    at = finding.last if event else finding.first
    return at is not None and at > closed_at


def _clearing(case: Case, instance: Instance, seen: Reread) -> None:
    """Resolve by itself once the evidence has been good for the policy's time; a repair under way decides itself."""
    if case.state == State.DECIDED or not seen.policy.values.get("auto_resolve", True):
        return
    now = clock.now()
    if case.clear_since is None:
        _write(case, clear_since=now)
        _audit(case, "case.clearing", f"the evidence reads {seen.assessment.verdict} again", EVIDENCE)
    if now - case.clear_since >= clock.scaled(float(seen.policy.values["clear_s"])):
        close(case, Resolution.CLEARED, f"the evidence cleared by itself: {seen.assessment.why}", EVIDENCE)


def _instance_gone(case: Case, instance: Instance) -> Case:
    if Repair.objects.filter(instance=instance, state__in=REPAIR_OPEN).exists():
        return case  # the repair tells its own end
    resolution = {Owner.GROUP: Resolution.REPLACED_BY_GROUP, Owner.ECS: Resolution.REPLACED_BY_ECS}.get(
        Owner(instance.owner), Resolution.INSTANCE_GONE
    )
    close(case, resolution, f"{instance} was ended by others", EVIDENCE)
    return case


def _tell_workload(instance: Instance, seen: Reread) -> None:
    for finding in seen.assessment.findings:
        if finding.verdict != Verdict.WORKLOAD:
            continue
        for workload in seen.workloads or ():
            day = f"{clock.now():%Y-%m-%d}"
            announce(
                key=f"workload-{workload.pk}-{finding.code}-{instance.pk}-{day}", kind="workload",
                to=f"workload:{workload.name}", subject=f"{finding.code} in {workload.name} on {instance}",
                body=finding.why, link=f"/instances/{instance.pk}/",
            )  # fmt: skip


# --- breadth --------------------------------------------------------------------------------------------------------


def open_group(
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
            join_group(case, group, actor)
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
    now = clock.now()
    if group is None:
        title = f"{len(members)} instances of {kind.replace('_', ' ')} {value}" + (f" show {code}" if code else "")
        group = Case.objects.create(
            account=account, region=region, breaker=breaker, state=State.WAITING, verdict=Verdict.CORRELATED,
            action="HOLD", mode="ask", code=code or "CORRELATED", codes=[code] if code else [], title=title[:255],
            why=why, why_waiting="Automatic repair in this scope stops until a person releases it",
            evidence_hash=digest([scope, code]), opened_at=now, changed_at=now, evidence_at=now,
            plan={"sentence": "Nothing is repaired in this scope until it is released. Releasing makes each member a "
                  "case of its own, repaired under the budget.", "action": "HOLD"},
        )  # fmt: skip
        _audit(group, "case.opened", f"{group.title}: {why}", actor, members=[c.instance.instance_id for c in members])
        announce(key=f"correlated-{group.pk}", kind="breaker", to="operators", subject=group.title, body=why,
                 link=f"/cases/{group.pk}/")  # fmt: skip
    return group


def name_victims(case: Case, victims: list[str], actor: Actor) -> None:
    """The mates of its job that show only aftermath: named on the root's case, and nothing is done to them."""
    _write(case, victims=victims)
    _audit(case, "case.victims", f"{len(victims)} mates show only aftermath", actor, victims=victims)


def join_group(case: Case, group: Case, actor: Actor) -> None:
    """Hold a case under a correlated one; what was scheduled for it and has not started is cancelled."""
    case = Case.objects.select_for_update().get(pk=case.pk)
    if case.state in (State.CLOSED, State.HELD):
        return
    for decision in case.decisions.filter(repair__state=RepairState.SCHEDULED).select_related("repair"):
        if repairs.cancel_scheduled(decision.repair_id, actor=actor, why=f"held by case {group.pk}"):
            Decision.objects.filter(pk=decision.pk).update(outcome="REFUSED", outcome_why=f"held by case {group.pk}")
            repairs.told(decision.repair_id)
    if case.decisions.filter(repair__state__in=[RepairState.RUNNING, RepairState.ASKING]).exists():
        return  # already under way: its next changing call meets the breaker
    _move(case, State.HELD, actor, f"held by correlated case {group.pk}")
    _write(case, parent=group, expires_at=None, why_waiting=f"held: {group.title}")
    _write(group, touch=True)


# --- time and the end of repairs ------------------------------------------------------------------------------------


@transaction.atomic
def expire(case_id: int) -> bool:
    """Nobody answered in time: nothing is done, operators are told, and the question is put anew."""
    case = Case.objects.select_for_update().get(pk=case_id)
    now = clock.now()
    if case.state != State.WAITING or case.expires_at is None or case.expires_at > now:
        return False
    history = [*case.plan.get("changed", []), {"version": case.plan_version + 1, "what": ["the answer time ran out"]}]
    _write(
        case, expired_at=now, expires_at=None, plan_version=case.plan_version + 1,
        plan={**case.plan, "changed": history[-10:]},
    )  # fmt: skip
    _audit(case, "case.expired", "nobody answered in time: nothing was done", CLOCK)
    announce(key=f"case-expired-{case.pk}-{case.plan_version}", kind="case_expired", to="operators",
             subject=f"Nobody answered: {case.title}", link=f"/cases/{case.pk}/")  # fmt: skip
    return True


@transaction.atomic
def wake_snoozed(case_id: int) -> bool:
    case = Case.objects.select_for_update().get(pk=case_id)
    if case.state != State.SNOOZED or case.snoozed_until is None or case.snoozed_until > clock.now():
        return False
    _move(case, State.WAITING, CLOCK, "the snooze ended")
    _write(case, snoozed_until=None, expires_at=None)
    if case.instance_id:
        wake("workers.decide.evaluate", case.instance_id)
    return True


@transaction.atomic
def carry_back(repair: Repair) -> None:
    """The end of a repair, told to its case once."""
    decision = Decision.objects.filter(repair=repair).first()
    # the case before its repair, as an undo locks them
    case = Case.objects.select_for_update().get(pk=decision.case_id) if decision else None
    if not repairs.told(repair.pk) or decision is None or case is None:
        return
    ended_well = repair.state == RepairState.SUCCEEDED
    Decision.objects.filter(pk=decision.pk).exclude(outcome="UNDONE").update(
        outcome="DONE" if ended_well else "REFUSED", outcome_why=repair.outcome_why
    )
    if case.state != State.DECIDED:
        return
    resolution = {
        "REPLACED": Resolution.REPAIRED, "REBOOTED": Resolution.REPAIRED, "RELOCATED": Resolution.REPAIRED,
        "REPLACED_BY_GROUP": Resolution.REPLACED_BY_GROUP, "INSTANCE_GONE": Resolution.INSTANCE_GONE,
    }.get(repair.outcome) if ended_well else None  # fmt: skip
    if resolution:
        return close(case, resolution, repair.outcome_why, WORKER)
    helped_not = repair.state == RepairState.FAILED
    _write(case, tries=case.tries + helped_not, expires_at=None, plan_version=case.plan_version + 1)
    _move(case, State.WAITING, WORKER, f"the repair ended: {repair.outcome.lower()}: {repair.outcome_why}")
    _write(case, why_waiting=repair.outcome_why)
    if helped_not:
        announce(key=f"repair-failed-{repair.pk}", kind="repair_failed", to="operators",
                 subject=f"Repair of {repair.instance} failed: {repair.outcome}", body=repair.outcome_why,
                 link=f"/cases/{case.pk}/")  # fmt: skip
    wake("workers.decide.evaluate", repair.instance_id)


def close(case: Case, resolution: Resolution, note: str, actor: Actor) -> None:
    """Close it with the reason kept apart from the state. Call inside a transaction, the row locked."""
    _move(case, State.CLOSED, actor, f"{resolution}: {note}")
    now = clock.now()
    _write(case, resolution=str(resolution), resolution_note=note, closed_at=now, why_waiting="", expires_at=None)
    case.decisions.filter(outcome="PENDING").update(outcome="REFUSED", outcome_why=f"the case closed: {note}"[:500])
    if case.parent_id:
        _write(case.parent, touch=True)


# --- within ---------------------------------------------------------------------------------------------------------


def _move(case: Case, to: State, actor: Actor, why: str) -> None:
    if to not in MOVES[State(case.state)]:
        raise IllegalMove(f"{case.state} -> {to}")
    if not Case.objects.filter(pk=case.pk, state=case.state).update(state=to, changed_at=clock.now()):
        raise IllegalMove(f"case {case.pk} moved meanwhile")
    _audit(case, f"case.{to.lower()}", why, actor, before=case.state, after=str(to))
    case.state = to


def _write(case: Case, *, touch: bool = True, **fields: Any) -> None:
    if touch:
        fields["changed_at"] = clock.now()
    if fields:
        Case.objects.filter(pk=case.pk).update(**fields)
        for name, value in fields.items():
            setattr(case, name, value)


def _audit(case: Case, verb: str, summary: str, actor: Actor, *, repair_id: int | None = None, **payload: Any) -> None:
    record(verb, f"case:{case.pk}", summary, actor=actor, instance=case.instance, case_id=case.pk, repair_id=repair_id,
           payload=payload)  # fmt: skip

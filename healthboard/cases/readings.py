"""What evidence does to a case: open it, escalate it in place, decide it by policy, resolve it by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from healthboard import clock
from healthboard.cases import evidence, groups, lifecycle, telling
from healthboard.cases import plan as plans
from healthboard.cases.judge import Judgement, judge
from healthboard.cases.models import BY_HAND, Case, Decision
from healthboard.cases.states import Resolution, State
from healthboard.diagnosis.signals import Assessment, Finding, Verdict
from healthboard.fleet.models import Instance, Owner
from healthboard.fleet.seeing import why_blind
from healthboard.notices import outbox
from healthboard.notices.kinds import OPERATORS
from healthboard.people.actors import EVIDENCE, POLICY, WORKER
from healthboard.policies.reading import BAD, GOOD, Reread
from healthboard.repairs import brakes
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.models import Call, Repair
from healthboard.repairs.states import OPEN as REPAIR_OPEN
from healthboard.repairs.states import State as RepairState
from healthboard.repairs.waiting import SOURCE, waits_for_sight
from healthboard.words import action as action_words


@transaction.atomic(savepoint=False)
def apply_reading(instance: Instance, seen: Reread) -> Case | None:
    """What a new reading means: open, escalate in place, resolve by itself, or nothing."""
    case = lifecycle.open_case_of(instance, lock=True)
    a = seen.assessment
    if instance.gone_at is not None:
        return _instance_gone(case, instance) if case else None
    if a.verdict in BAD:
        if case is None:
            return None if _ended_by_repair(instance) or _answered_before(instance, a) else _open(instance, seen)
        if not (case.by_hand and _answered_before(instance, a)):  # what a person dismissed takes no other case over
            return _update(case, instance, seen)
    if a.verdict == Verdict.WORKLOAD:
        _tell_workload(instance, seen)
    if case is not None and case.by_hand:
        if case.state == State.WAITING:  # for a second person, or since its repair did not end well
            _expect_answer(case, seen.policy.values)
    elif case is not None and a.verdict in GOOD:
        _clearing(case, instance, seen)
    elif case is not None:
        if case.clear_since is not None:
            lifecycle.write(case, clear_since=None)  # good means without a break: what could not be seen was not good
        _ask_unseen(case, instance, seen)
    return case


def _open(instance: Instance, seen: Reread) -> Case:
    a = seen.assessment
    judged = judge(instance, seen)
    case = lifecycle.create(
        account=instance.account, region=instance.region, instance=instance, pool=instance.pool,
        state=State.OBSERVED if judged.mode == "observe" else State.WAITING,
        evidence_hash=evidence.evidence_hash(a),
        **_reading_fields(instance, seen, judged), plan=plans.build(instance, judged, seen.policy.values),
    )  # fmt: skip
    case.workloads.set(seen.workloads)
    evidence.keep(case, seen, judged)
    lifecycle.audit(case, "case.opened", f"{case.title}: {case.why}", EVIDENCE, verdict=case.verdict, codes=case.codes)
    _route(case, instance, seen, judged)
    return case


def _update(case: Case, instance: Instance, seen: Reread) -> Case:
    a = seen.assessment
    judged = judge(instance, seen)
    new_hash = evidence.evidence_hash(a)
    worse = case.verdict != Verdict.HARDWARE and a.verdict == Verdict.HARDWARE
    fields = {**_reading_fields(instance, seen, judged), "clear_since": None}
    fresh = plans.build(instance, judged, seen.policy.values)
    if case.state == State.DECIDED:
        # the decision stands on what it was shown; the repair checks again by itself before it acts
        fields = {k: fields[k] for k in ("verdict", "code", "codes", "gpu", "title", "why", "may_act", "clear_since")}
        fields["evidence_hash"] = new_hash
        fresh = case.plan
    if case.by_hand and not _stopped_by_person(case):
        fields["evidence_at"] = clock.now()  # its evidence begins here, and counts as such when many are compared
    changes = _changes(case, fields, fresh)
    if new_hash != case.evidence_hash:
        changes.append("the evidence")
    if new_hash != case.evidence_hash or _answers_otherwise(case, fields):
        evidence.keep(case, seen, judged)
    if case.state != State.DECIDED:
        _renew_plan(case, fields, fresh, new_hash, changes)
    lifecycle.write(case, **fields, touch=bool(changes))
    if changes:
        verb = "case.escalated" if worse else "case.evidence"
        lifecycle.audit(case, verb, f"{case.title}: changed {', '.join(changes)}", EVIDENCE, codes=case.codes)
    if case.state == State.SNOOZED and worse:
        lifecycle.move(case, State.WAITING, EVIDENCE, "woken: the evidence got worse")
    asked = case.expires_at is not None
    _route(case, instance, seen, judged)
    if worse and asked and case.state == State.WAITING:
        telling.tell(
            case, "case_waiting", key=f"case-worse-{case.pk}-{case.plan_version}", to=seen.policy.values["notify"],
            subject=f"It got worse: {case.title}: {action_words(case.action).lower()}?", body=case.why,
            severity=_grave(case),
        )  # fmt: skip
    return case


def _grave(case: Case) -> str:
    """Of a question: what is clearly broken wakes people, what is ambiguous need not."""
    return "critical" if case.verdict == Verdict.HARDWARE else "warning"


def _answers_otherwise(case: Case, fields: dict[str, Any]) -> bool:
    """The same findings lead elsewhere than before, so that a decision would rest on this reading of them."""
    if case.state == State.DECIDED:
        return False
    version = fields["policy_version"]
    now = (fields["mode"], fields["action"], fields["may_act"], version.pk if version else None)
    return now != (case.mode, case.action, case.may_act, case.policy_version_id)


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


def _route(case: Case, instance: Instance, seen: Reread, judged: Judgement) -> None:
    """Where an open, undecided case stands now: decided by policy, held, observed, or waiting for a person."""
    if case.state in (State.DECIDED, State.SNOOZED, State.CLOSED):
        return
    names = sorted({w.name for w in (*seen.workloads, *case.workloads.all())})
    breaker = next((b for b in brakes.breakers_for(instance, names) if b.kind == "CORRELATED"), None)
    if breaker and judged.mode != "observe" and (group := groups.holding(breaker.pk)):
        if case.state != State.HELD:
            groups.join(case, group, WORKER)
        return
    if judged.mode == "observe":
        if case.state != State.OBSERVED:
            lifecycle.move(case, State.OBSERVED, POLICY, judged.why)
        return _waits(case, judged.why)
    if judged.mode == "auto" and not (stopped := _stopped_by_person(case)):
        return _decide_by_policy(case, instance, seen, judged)
    if case.state != State.WAITING:
        lifecycle.move(case, State.WAITING, POLICY, judged.why)
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
        return f"its last repair ended: {last.outcome_why}" if last.outcome_why else "the last repair did not help"
    return ""


def _decide_by_policy(case: Case, instance: Instance, seen: Reread, judged: Judgement) -> None:
    now = clock.now()
    row = Repair.objects.filter(instance=instance, state__in=REPAIR_OPEN).first()
    if row is not None:
        return _waits(case, f"a repair is under way already ({row.action.lower()})")
    if reasons := why_blind(instance, now):
        return _wait_for_sight(case, reasons[0])
    plan = plans.build(instance, judged, seen.policy.values)
    repair = repairs.open_repair(
        instance=instance, action=judged.action, actor=POLICY, values=dict(seen.policy.values),
        not_before=now + breadth_seen(), policy_version=seen.policy.version, plan=plan,
        watch=judged.watch,
    )  # fmt: skip
    lifecycle.decided(
        case, kind=Decision.Kind.AUTO, action=judged.action, reason=judged.why, actor=POLICY.name, via="policy",
        policy_version=seen.policy.version, outcome="DONE", repair=repair,
    )  # fmt: skip
    lifecycle.audit(case, "case.decided", f"{judged.action} by policy: {judged.why}", POLICY, repair_id=repair.pk)
    lifecycle.move(case, State.DECIDED, POLICY, f"{judged.action} by policy")
    lifecycle.write(case, plan=plan, expires_at=None, why_waiting="", action=judged.action)
    telling.tell(
        case, "case_decided", key=f"case-decided-{case.pk}-{repair.pk}", to=seen.policy.values["notify"],
        subject=f"{case.title}: {action_words(judged.action).lower()}, by policy", body=judged.why,
    )  # fmt: skip


def _wait_for_sight(case: Case, why: str) -> None:
    """Nothing is decided by itself while a source that the decision rests on is blind, or is watched first after it
    was: the case says which, is read again as time goes by, and is decided once they see. A person may answer."""
    if not case.why_waiting.startswith(SOURCE):  # once for each time, also where its time to be answered ran out before
        lifecycle.audit(case, "case.blind", f"not decided by itself: {why}", POLICY)
    if case.state != State.WAITING:
        lifecycle.move(case, State.WAITING, POLICY, why)
    lifecycle.write(case, why_waiting=why, expires_at=None)


def _ask_unseen(case: Case, instance: Instance, seen: Reread) -> None:
    """The sources see again, and what is read of it meanwhile says neither good nor bad: its policy decides nothing on
    that, so a person is asked."""
    if waits_for_sight(case) and not why_blind(instance, clock.now()):
        _waits(case, f"its evidence cannot be read now: {seen.assessment.why}")
        _expect_answer(case, seen.policy.values)


def breadth_seen() -> timedelta:
    """One full collection round: before that nothing starts and nobody is woken, so that many at once are one matter."""
    return timedelta(seconds=max(clock.scaled(60).total_seconds(), 5.0) * 1.5)


def _waits(case: Case, why: str) -> None:
    if case.why_waiting != why:
        lifecycle.write(case, why_waiting=why)


def _expect_answer(case: Case, values: dict[str, Any]) -> None:
    if case.expires_at is None:
        lifecycle.write(case, expires_at=clock.now() + timedelta(seconds=float(values["expiry_s"])))
        telling.tell(
            case, "case_waiting", key=f"case-waiting-{case.pk}-{case.expires_at.timestamp():.0f}",
            subject=f"{case.title}: {action_words(case.action).lower()}?", body=case.why, to=values["notify"],
            after=breadth_seen(), severity=_grave(case),
        )  # fmt: skip


def _ended_by_repair(instance: Instance) -> bool:
    """True where a repair ended this machine: what is read of it before the collectors miss it is its end, no new fault."""
    ended = ("REPLACED", "REPLACED_BY_GROUP", "INSTANCE_GONE")
    return (
        Repair.objects.filter(instance=instance, state=RepairState.SUCCEEDED, outcome__in=ended).exists()
        or Call.objects.filter(
            operation__startswith="Terminate", target=instance.instance_id, outcome="ok",
            repair__instance__account=instance.account_id,
        ).exists()
    )  # fmt: skip


def _answered_before(instance: Instance, a: Assessment) -> bool:
    """True where a person dismissed exactly this and nothing new has happened since; what people asked for by hand
    meanwhile says nothing about it."""
    closed = Case.objects.filter(instance=instance, state=State.CLOSED).exclude(code=BY_HAND)
    last = closed.order_by("-closed_at").first()
    if last is None or last.resolution != Resolution.DISMISSED:
        return False
    known = {(f.get("code"), f.get("gpu")) for e in last.evidence.all() for f in e.assessment.get("findings", [])}
    worse = a.verdict == Verdict.HARDWARE and last.verdict != Verdict.HARDWARE
    decisive = [f for f in a.findings if f.verdict in BAD]
    fresh = [f for f in decisive if (f.code, f.gpu) not in known or _since_then(f, last.closed_at)]
    return not worse and not fresh


def _since_then(finding: Finding, closed_at: datetime) -> bool:
    """It was told again; or, of what only readings show, a condition that had ended began anew. That a reading of it
    stands on is what was dismissed."""
    at = finding.told or finding.first
    return at is not None and at > closed_at


def _clearing(case: Case, instance: Instance, seen: Reread) -> None:
    """Resolve by itself once the evidence has been good for the policy's time; a repair under way decides itself."""
    if case.state == State.DECIDED or not seen.policy.values.get("auto_resolve", True):
        return
    now = clock.now()
    if case.clear_since is None:
        lifecycle.write(case, clear_since=now)
        lifecycle.audit(case, "case.clearing", f"the evidence reads {seen.assessment.verdict} again", EVIDENCE)
    if now - case.clear_since >= clock.scaled(float(seen.policy.values["clear_s"])):
        lifecycle.close(case, Resolution.CLEARED, f"the evidence cleared by itself: {seen.assessment.why}", EVIDENCE)


def _instance_gone(case: Case, instance: Instance) -> Case:
    if Repair.objects.filter(instance=instance, state__in=REPAIR_OPEN).exists() or (
        case.decisions.filter(repair__isnull=False, repair__carried_back_at=None).exists()
    ):
        return case  # the repair tells its own end, if it has not done so yet
    resolution = {Owner.GROUP: Resolution.REPLACED_BY_GROUP, Owner.ECS: Resolution.REPLACED_BY_ECS}.get(
        Owner(instance.owner), Resolution.INSTANCE_GONE
    )
    lifecycle.close(case, resolution, f"{instance} was ended by others", EVIDENCE)
    return case


def _tell_workload(instance: Instance, seen: Reread) -> None:
    """In one order of workloads and codes: the nodes of a job tell of the same notices at the same time."""
    found = sorted((f for f in seen.assessment.findings if f.verdict == Verdict.WORKLOAD), key=lambda f: f.code)
    for workload in sorted(seen.workloads or (), key=lambda w: w.pk):
        for finding in found:
            hour = f"{finding.last or clock.now():%Y-%m-%dT%H}"  # told anew only where it happened anew
            outbox.tally(
                key=f"workload-{workload.pk}-{finding.code}-{hour}", code=finding.code, workload=workload.name,
                instance=instance.instance_id, count=finding.count, why=finding.why,
                link=f"/instances/{instance.pk}/", to=set(seen.policy.values["notify"]) - {OPERATORS},
                account=instance.account.account_id, region=instance.region,
                pool=instance.pool.name if instance.pool else "",
            )  # fmt: skip

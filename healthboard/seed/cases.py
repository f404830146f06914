"""One made-up fault read as the product reads it, and the case that it opens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from healthboard.cases.evidence import answer_json, assessment_json, evidence_hash
from healthboard.cases.judge import NOT_OURS, Circumstances, Judgement, narrow
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.cases.plan import ACTION_TITLES
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Event
from healthboard.fleet.evidence import freeze
from healthboard.fleet.models import Owner
from healthboard.people.actors import EVIDENCE, Actor
from healthboard.policies.matching import Resolved, Snapshot, combine, target_of
from healthboard.policies.reading import Reread
from healthboard.policies.resolve import thresholds
from healthboard.repairs.models import Repair
from healthboard.repairs.recipes import STEPS, minutes, recipe
from healthboard.seed import signals
from healthboard.seed.machines import Machine
from healthboard.seed.rows import Rows, Told

#: a case is opened by the second look at a fault
SEEN_AFTER = timedelta(seconds=75)


@dataclass(slots=True)
class Fault:
    """A fault of one machine, as it was read."""

    one: Machine
    code: str
    gpu: int
    at: datetime
    events: list[Event]
    seen: Reread
    judged: Judgement


class Reader:
    """Reads faults under the policies that there are, as `policies.reading` does, without asking the database."""

    def __init__(self, policies: Sequence[Snapshot], rng: random.Random) -> None:
        self.policies, self.rng = policies, rng
        self.known: dict[tuple[Any, ...], Resolved] = {}

    def read(self, one: Machine, code: str, at: datetime, after: timedelta = SEEN_AFTER) -> Fault:
        """The fault began at `at` and was read `after` it."""
        gpu, now, fault = self.rng.randrange(len(one.gpus)), at + after, signals.fault_of(code)
        told = signals.events(one, fault, at, gpu)
        held, about = signals.readings(one, now, fault, at, gpu), signals.context(one)
        policy = self.policy(one)
        limits = thresholds(policy.values)
        a = evaluate(told, held, now=now, context=about, thresholds=limits)
        seen = Reread(now, a, policy, tuple(one.workloads), tuple(told), tuple(held), about, limits)
        given = Circumstances(
            owner=str(one.row.owner), untouchable=NOT_OURS[Owner.ECS] if one.row.owner == Owner.ECS else "",
            group_replaces=one.row.owner == Owner.GROUP and one.row.pool.replaces_by_itself,
        )  # fmt: skip
        return Fault(one, code, gpu, at, told, seen, narrow(a, policy, given))

    def policy(self, one: Machine) -> Resolved:
        key = (id(one.home), *(work.name for work in one.workloads))
        if key not in self.known:
            targets = [target_of(one.row, w) for w in one.workloads] or [target_of(one.row, None)]
            self.known[key] = combine(self.policies, targets)
        return self.known[key]


def open_case(fault: Fault, rows: Rows, *, state: str, plan: dict[str, Any] | None = None, **fields: Any) -> Case:
    """The case with its evidence and workloads, as `cases.readings` would open it."""
    one, seen, judged, a = fault.one, fault.seen, fault.judged, fault.seen.assessment
    primary = a.primary or (a.findings[0] if a.findings else None)
    code, why = (primary.code, primary.why) if primary else (str(a.verdict), a.why)
    gpu = (primary.gpu if primary else None) or ""
    where = f" on GPU {fault.gpu}" if gpu else ""
    inputs = freeze(seen.events, seen.readings, seen.context, thresholds=seen.thresholds, now=seen.at)
    policies = {
        "versions": [{"number": v.number, "data": v.data} for v in seen.policy.versions],
        "targets": [asdict(target) for target in seen.policy.targets],
    }
    case = Case(
        account=one.row.account, region=one.row.region, instance=one.row, pool=one.row.pool, state=state,
        verdict=str(a.verdict), action=judged.action, mode=judged.mode, mode_why=judged.why, may_act=a.may_act,
        code=code, codes=list(a.codes), gpu=gpu, title=f"{code}{where} of {one.row}"[:255], why=why or a.why,
        plan=plan or plan_of(fault), evidence_hash=evidence_hash(a), policy_version=seen.policy.version,
        opened_at=seen.at, evidence_at=seen.at, **{"changed_at": seen.at, **fields},
    )  # fmt: skip
    rows.cases.append(case)
    rows.frozen.append((case, seen.workloads))
    rows.evidence.append(
        Evidence(
            case=case, at=seen.at, hash=case.evidence_hash, verdict=case.verdict,
            inputs={**inputs, "policy": policies, "given": asdict(judged.given)}, assessment=assessment_json(a),
            answer=answer_json(judged),
        )
    )  # fmt: skip
    rows.events += signals.event_rows(one, fault.events)
    payload = {"verdict": case.verdict, "codes": case.codes}
    tell(rows, case, seen.at, "case.opened", f"{case.title}: {case.why}", EVIDENCE, **payload)
    return case


def plan_of(fault: Fault) -> dict[str, Any]:
    """What was to be done, without the figures that only a look at the whole pool of then would give."""
    one, action = fault.one, fault.judged.action
    steps = recipe(action, one.row.owner, watch=fault.judged.watch)
    tasks = [
        {"workload": w.name, "kind": w.kind, "count": len(one.tasks), "protected": 0,
         "standalone": len(one.tasks) if w.kind == "FAMILY" else 0}
        for w in one.workloads
    ]  # fmt: skip
    return {
        "action": action, "owner": str(one.row.owner), "sentence": f"{ACTION_TITLES.get(action, action)}: {one.row}",
        "steps": [{"name": s, **asdict(STEPS[s])} for s in steps], "tasks": tasks,
        "tasks_total": sum(t["count"] for t in tasks), "blockers": [], "warnings": [], "replacement": {}, "loses": [],
        "undo": "", "minutes": minutes(steps), "choices": [],
    }  # fmt: skip


def decide(
    case: Case, rows: Rows, kind: str, at: datetime, actor: Actor, *, reason: str = "", repair: Repair | None = None,
    action: str = "", outcome: str = "DONE", outcome_why: str = "",
) -> None:  # fmt: skip
    """A decision on the case as it stands, with its audit rows."""
    action = action or (case.action if kind in ("auto", "approve", "override") else "")
    rows.decisions.append(
        Decision(
            case=case, kind=kind, action=action, reason=reason, user=actor.user, actor=actor.name,
            via="policy" if kind == "auto" else actor.via, plan_version=case.plan_version,
            evidence_hash=case.evidence_hash, policy_version=case.policy_version, at=at, outcome=outcome,
            outcome_why=outcome_why, repair=repair,
        )
    )  # fmt: skip
    words = f"by policy: {case.mode_why}" if kind == "auto" else reason
    verb = "case.decided" if kind == "auto" else f"case.{kind}"
    tell(rows, case, at, verb, f"{action} {words}".strip(), actor, repair=repair)


def close(case: Case, rows: Rows, resolution: str, note: str, at: datetime, actor: Actor) -> None:
    case.state, case.resolution, case.resolution_note, case.closed_at = "CLOSED", resolution, note, at
    case.changed_at = at
    tell(rows, case, at, "case.closed", f"{resolution}: {note}", actor)


def tell(rows: Rows, case: Case, at: datetime, verb: str, summary: str, actor: Actor, *,
         repair: Repair | None = None, **payload: Any) -> None:  # fmt: skip
    rows.told.append(Told(at, verb, summary, actor, case, case.instance, case, repair, payload))

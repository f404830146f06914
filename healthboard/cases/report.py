"""Everything about one case on one sheet: evidence, who says what, decisions, plan, steps, outcome, times, and its place
in the audit chain. Read-only; the page and the API show the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from healthboard.audit.models import AuditRow, Seal
from healthboard.cases import times
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.diagnosis import catalogue
from healthboard.fleet import foreign
from healthboard.repairs.models import Repair

#: of the record and of kept evidence, the newest; more are counted
ROWS, EVIDENCE, CODES = 400, 100, 12


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain when the report was made, and when that was sealed."""

    position: int
    hash: str
    sealed_at: datetime


@dataclass(frozen=True, slots=True)
class Report:
    case: Case
    instances: list[str]  # of a group: its members and what shows the same, as far as they may be seen
    others: int  # of them, those that may not
    times: times.Times
    evidence: list[Evidence]  # oldest first
    evidence_more: int
    decided_on: Evidence | None  # what the first decision rested on; the newest where none was made
    findings: list[dict[str, Any]]
    says: list[dict[str, Any]]
    decisions: list[Decision]
    repairs: list[Repair]
    rows: list[AuditRow]
    rows_more: int
    unsealed: int
    head: Head | None


def build(case: Case, see: foreign.See) -> Report:
    """In a fixed number of queries, whatever the case has seen. `see` (`access.seeing`): whom it is for; instances that
    they may not see are counted and not named. Nothing of it is to be saved."""
    decisions = foreign.rows(
        see, case.decisions.select_related("policy_version__policy").order_by("pk"), "reason", "outcome_why"
    )
    found = (
        Repair.objects.filter(decision__case=case)
        .select_related("instance", "pool", "replacement", "policy_version__policy")
        .prefetch_related("steps__calls").order_by("pk")
    )  # fmt: skip
    repairs = foreign.rows(see, found, "outcome_why", "plan")
    about = AuditRow.objects.filter(Q(case_id=case.pk) | Q(repair_id__in=[repair.pk for repair in repairs]))
    rows = list(about.select_related("seal").order_by("-pk")[: ROWS + 1])
    kept = list(case.evidence.defer("inputs").order_by("-pk")[: EVIDENCE + 1])
    first = next((d for d in decisions if d.kind != "snooze"), None)
    on = next((e for e in kept if first is None or e.at <= first.at), kept[-1] if kept else None)
    foreign.rows(see, rows, "summary")
    foreign.rows(see, filter(None, [on]), "assessment")
    end = Seal.objects.order_by("-position").first()
    named = _named(case)
    hidden = foreign.unseen(see, set(named)) if named else set()
    return Report(
        case=case,
        instances=[name for name in named if name not in hidden],
        others=len(hidden),
        times=times.of(case, decisions, repairs, rows[:ROWS]),
        evidence=kept[:EVIDENCE][::-1],
        evidence_more=case.evidence.count() - EVIDENCE if len(kept) > EVIDENCE else 0,
        decided_on=on,
        findings=list((on.assessment or {}).get("findings") or []) if on else [],
        says=[] if case.by_hand else _says(case),
        decisions=decisions,
        repairs=repairs,
        rows=rows[:ROWS][::-1],
        rows_more=about.count() - ROWS if len(rows) > ROWS else 0,
        unsealed=sum(not hasattr(row, "seal") for row in rows[:ROWS]),
        head=Head(end.position, end.hash, end.sealed_at) if end else None,
    )


def _named(case: Case) -> list[str]:
    if case.instance_id is not None:
        return []
    members = case.members.exclude(instance=None).order_by("pk").values_list("instance__instance_id", flat=True)
    return list(dict.fromkeys([*members, *case.victims]))


def _says(case: Case) -> list[dict[str, Any]]:
    found = []
    for code in list(dict.fromkeys([case.code, *case.codes]))[:CODES]:
        entry = catalogue.get(code)
        found.append({"code": code, "title": entry.title, "apart": entry.disagreement,
                      "said": [{"who": who, "says": said} for who, said in catalogue.who_says(code)]})  # fmt: skip
    return found


def plain(report: Report) -> dict[str, Any]:
    """As values for JSON; times ISO 8601 in UTC once encoded."""
    case, on = report.case, report.decided_on
    t = asdict(report.times)
    return {
        "case": case.pk,
        "title": case.title,
        "account": case.account.account_id,
        "region": case.region,
        "pool": case.pool.name if case.pool else "",
        "instance": case.instance.instance_id if case.instance else "",
        "instances": report.instances or ([case.instance.instance_id] if case.instance else []),
        "others": report.others,
        "gpu": case.gpu,
        "verdict": case.verdict,
        "codes": list(case.codes),
        "state": case.state,
        "resolution": case.resolution,
        "outcome": case.resolution_note,
        "policy": str(case.policy_version) if case.policy_version else "",
        "times": {**t, "waits": list(t["waits"])},
        "evidence": [{"at": e.at, "verdict": e.verdict, "hash": e.hash} for e in report.evidence],
        "decided_on": {"at": on.at, "hash": on.hash, "witnesses": list((on.assessment or {}).get("witnesses") or [])}
        if on
        else None,
        "findings": report.findings,
        "sources": report.says,
        "decisions": [_decision(d) for d in report.decisions],
        "plan": case.plan,
        "repairs": [_repair(r) for r in report.repairs],
        "audit": [
            {"id": row.pk, "at": row.at, "actor": row.actor, "via": row.via, "verb": row.verb, "summary": row.summary,
             "position": row.seal.position if hasattr(row, "seal") else None}
            for row in report.rows
        ],
        "audit_head": asdict(report.head) if report.head else None,
    }  # fmt: skip


def _decision(d: Decision) -> dict[str, Any]:
    return {
        "at": d.at, "decision": d.kind, "action": d.action, "reason": d.reason, "actor": d.actor, "via": d.via,
        "plan_version": d.plan_version, "evidence_hash": d.evidence_hash,
        "policy": str(d.policy_version) if d.policy_version else "", "outcome": d.outcome,
        "outcome_why": d.outcome_why, "undone_at": d.undone_at,
    }  # fmt: skip


def _repair(r: Repair) -> dict[str, Any]:
    steps = [
        {"number": s.number, "name": s.name, "state": s.state, "note": s.note, "started_at": s.started_at,
         "ended_at": s.ended_at,
         "calls": [{"service": c.service, "operation": c.operation, "target": c.target, "outcome": c.outcome,
                    "intended_at": c.intended_at, "answered_at": c.answered_at} for c in s.calls.all()]}
        for s in r.steps.all()
    ]  # fmt: skip
    return {
        "id": r.pk, "action": r.action, "state": r.state, "outcome": r.outcome, "outcome_why": r.outcome_why,
        "requested_by": r.requested_by, "replacement": r.replacement.instance_id if r.replacement else "",
        "opened_at": r.opened_at, "closed_at": r.closed_at, "plan": r.plan, "steps": steps,
    }  # fmt: skip

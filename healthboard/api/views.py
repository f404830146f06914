"""Rows as the API shows them; `for_person` takes out what the person may not see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Prefetch, QuerySet

from healthboard.cases.models import Case, Decision
from healthboard.fleet import foreign
from healthboard.fleet.models import Gpu, Instance
from healthboard.repairs.models import Repair
from healthboard.repairs.waiting import waiting_for


def for_person(see: foreign.See, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows for a person (`access.seeing`): instances of other scopes are not named, and where a case has some,
    `others` says how many."""
    told: list[dict[str, Any]] = foreign.plain(see, items)
    for item, whole in zip(told, items, strict=True):
        if "others" in item:
            item["others"] = len(_all_of(whole)) - len(_all_of(item))
    return told


def _all_of(item: dict[str, Any]) -> set[str]:
    return {*item["instances"], *item["victims"]}


#: what a list shows of each; the rest of a row is long (plans, settings, facts), or read for nothing
_CASE = (
    "codes", "verdict", "action", "state", "resolution", "plan_version", "evidence_hash", "opened_at", "closed_at",
    "region", "code", "title", "mode", "why", "why_waiting", "parent", "victims", "expires_at", "snoozed_until",
    "account__account_id", "instance__instance_id", "pool__name",
)  # fmt: skip
_REPAIR = (
    "action", "state", "outcome", "opened_at", "closed_at", "step", "why_waiting", "automatic", "requested_by",
    "instance__instance_id", "pool__name", "replacement__instance_id", "decision__plan_version",
    "decision__evidence_hash", "decision__case__codes", "decision__case__verdict",
)  # fmt: skip
_INSTANCE = (
    "instance_id", "region", "owner", "zone", "instance_type", "state", "ecs_status", "agent_connected",
    "tasks_running", "verdict", "verdict_code", "verdict_why", "seen_at", "node_seen_at", "gone_at",
    "account__account_id", "cluster__name", "pool__name",
)  # fmt: skip


def listed_cases() -> QuerySet[Case]:
    """`cases` with no more of each than `case` reads."""
    return cases().only(*_CASE)


def listed_repairs() -> QuerySet[Repair]:
    return repairs().only(*_REPAIR)


def listed_instances() -> QuerySet[Instance]:
    return instances().only(*_INSTANCE)


def cases() -> QuerySet[Case]:
    """Cases with everything that `case` reads, in a fixed number of queries."""
    members = Case.objects.select_related("instance").only("parent", "instance__instance_id").order_by("pk")
    decided = Decision.objects.exclude(repair=None).order_by("pk")
    decided = decided.select_related("repair").only("case", "repair__closed_at")
    return Case.objects.select_related("account", "instance", "pool").prefetch_related(
        Prefetch("members", queryset=members, to_attr="member_rows"),
        Prefetch("decisions", queryset=decided, to_attr="decided_rows"),
    )


def case(row: Case) -> dict[str, Any]:
    if row.instance is not None:
        instances = [row.instance.instance_id]
    else:
        members = [m.instance.instance_id for m in row.member_rows if m.instance]
        instances = list(dict.fromkeys([*members, *row.victims]))
    return {
        "id": row.pk,
        "instances": instances,
        "codes": list(row.codes),
        "verdict": row.verdict,
        "action": row.action,
        "state": row.state,
        "resolution": row.resolution,
        "plan_version": row.plan_version,
        "evidence_hash": row.evidence_hash,
        "pool": row.pool.name if row.pool else "",
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        "account": row.account.account_id,
        "region": row.region,
        "code": row.code,
        "title": row.title,
        "mode": row.mode,
        "why": row.why,
        "why_waiting": row.why_waiting,
        "parent": row.parent_id,
        "victims": list(row.victims),
        "repairs": [d.repair_id for d in row.decided_rows],
        "expires_at": row.expires_at,
        "snoozed_until": row.snoozed_until,
        "others": 0,
    }


def case_detail(row: Case) -> dict[str, Any]:
    return {
        **case(row),
        "plan": row.plan,
        "mode_why": row.mode_why,
        "workloads": sorted(w.name for w in row.workloads.all()),
        "decisions": [decision(d) for d in row.decisions.order_by("pk")],
        "waiting_for": _waiting(row.instance, row, _open(d.repair for d in row.decided_rows)),
    }


def decision(row: Decision) -> dict[str, Any]:
    return {
        "id": row.pk,
        "case": row.case_id,
        "decision": row.kind,
        "action": row.action,
        "reason": row.reason,
        "actor": row.actor,
        "via": row.via,
        "at": row.at,
        "plan_version": row.plan_version,
        "evidence_hash": row.evidence_hash,
        "outcome": row.outcome,
        "outcome_why": row.outcome_why,
        "undone_at": row.undone_at,
        "repair": row.repair_id,
    }


def repairs() -> QuerySet[Repair]:
    return Repair.objects.select_related("instance", "pool", "replacement", "decision__case")


def repair(row: Repair) -> dict[str, Any]:
    """A repair by hand has no case: its codes, verdict and hash are empty."""
    decided = getattr(row, "decision", None)
    of = decided.case if decided else None
    return {
        "id": row.pk,
        "instances": [row.instance.instance_id],
        "codes": list(of.codes) if of else [],
        "verdict": of.verdict if of else "",
        "action": row.action,
        "state": row.state,
        "resolution": row.outcome,
        "plan_version": decided.plan_version if decided else None,
        "evidence_hash": decided.evidence_hash if decided else "",
        "pool": row.pool.name if row.pool else "",
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        "case": of.pk if of else None,
        "step": row.step,
        "why_waiting": row.why_waiting,
        "automatic": row.automatic,
        "requested_by": row.requested_by,
        "replacement": row.replacement.instance_id if row.replacement else "",
    }


def repair_detail(row: Repair) -> dict[str, Any]:
    names = ("number", "name", "state", "note", "started_at", "ended_at")
    of = getattr(row, "decision", None)
    waits = _waiting(row.instance, of.case if of else None, row) if row.closed_at is None else []
    return {**repair(row), "plan": row.plan, "steps": list(row.steps.values(*names)), "waiting_for": waits}


def _waiting(on: Instance | None, of: Case | None, under_way: Repair | None) -> list[dict[str, Any]]:
    if of is not None and of.closed_at is not None and under_way is None:
        return []
    return [{"kind": w.kind, "text": w.text, "until": w.until} for w in waiting_for(on, of, under_way)]


def _open(rows: Iterable[Repair]) -> Repair | None:
    return next((row for row in rows if row.closed_at is None), None)


def instances() -> QuerySet[Instance]:
    open_cases = Case.objects.filter(closed_at=None).order_by("pk")
    open_repairs = Repair.objects.filter(closed_at=None).order_by("pk")
    return Instance.objects.select_related("account", "cluster", "pool").prefetch_related(
        Prefetch("cases", queryset=open_cases, to_attr="open_cases"),
        Prefetch("repairs", queryset=open_repairs, to_attr="open_repairs"),
    )


def instance(row: Instance) -> dict[str, Any]:
    return {
        "id": row.pk,
        "instance_id": row.instance_id,
        "account": row.account.account_id,
        "region": row.region,
        "cluster": row.cluster.name if row.cluster else "",
        "pool": row.pool.name if row.pool else "",
        "owner": row.owner,
        "zone": row.zone,
        "instance_type": row.instance_type,
        "state": row.state,
        "ecs_status": row.ecs_status,
        "agent_connected": row.agent_connected,
        "tasks_running": row.tasks_running,
        "verdict": row.verdict,
        "code": row.verdict_code,
        "why": row.verdict_why,
        "case": row.open_cases[0].pk if row.open_cases else None,
        "repair": row.open_repairs[0].pk if row.open_repairs else None,
        "seen_at": row.seen_at,
        "node_seen_at": row.node_seen_at,
        "gone_at": row.gone_at,
    }


def instance_detail(row: Instance) -> dict[str, Any]:
    of = row.open_cases[0] if row.open_cases else None
    under_way = row.open_repairs[0] if row.open_repairs else None
    return {**instance(row), "waiting_for": _waiting(row, of, under_way)}


def condemned() -> QuerySet[Gpu]:
    return Gpu.objects.exclude(condemned_at=None).select_related("account", "instance")


def gpu(row: Gpu) -> dict[str, Any]:
    return {
        "id": row.pk,
        "uuid": row.uuid,
        "serial": row.serial,
        "name": row.name,
        "account": row.account.account_id,
        "region": row.region,
        "instance": row.instance.instance_id if row.instance else "",
        "status": row.status,
        "condemned_at": row.condemned_at,
        "why": row.condemned_why,
    }

"""Unsaved rows of a made-up fleet, in the order in which they can be written, and what the audit record tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.audit.record import digest
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.fleet.models import (
    Account,
    Cluster,
    Gpu,
    Head,
    HealthEvent,
    Instance,
    Interval,
    JobStop,
    Pool,
    Source,
    Task,
    Workload,
)
from healthboard.people.actors import Actor
from healthboard.repairs.models import Breaker, Call, Launch, Occupancy, Repair, Step

BATCH = 2000


@dataclass(slots=True)
class Told:
    """One audit row to be: its case, repair and call get their numbers when they are written."""

    at: datetime
    verb: str
    summary: str
    actor: Actor
    subject: Any
    instance: Instance | None = None
    case: Case | None = None
    repair: Repair | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    call: Call | None = None


@dataclass(slots=True)
class Rows:
    accounts: list[Account] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    gpus: list[Gpu] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    stops: list[JobStop] = field(default_factory=list)
    events: list[HealthEvent] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    breakers: list[Breaker] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    frozen: list[tuple[Case, tuple[Workload, ...]]] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    occupancy: list[Occupancy] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def write_fleet(self) -> None:
        """Call inside a transaction."""
        Account.objects.bulk_create(self.accounts)
        Cluster.objects.bulk_create(self.clusters)
        Pool.objects.bulk_create(self.pools)
        Source.objects.bulk_create(self.sources)
        Workload.objects.bulk_create(self.workloads)
        Instance.objects.bulk_create(self.instances, batch_size=BATCH)
        Gpu.objects.bulk_create(self.gpus, batch_size=BATCH)
        Task.objects.bulk_create(self.tasks, batch_size=BATCH)
        JobStop.objects.bulk_create(self.stops)
        HealthEvent.objects.bulk_create(self.events, batch_size=BATCH)
        Head.objects.bulk_create(self.heads, batch_size=BATCH)
        Interval.objects.bulk_create(self.intervals, batch_size=BATCH)

    def write_history(self) -> None:
        """Call inside the transaction of `write_fleet`, after it: cases, repairs and what the record tells of them."""
        Breaker.objects.bulk_create(self.breakers)
        groups = [case for case in self.cases if case.parent is None]
        Case.objects.bulk_create(groups, batch_size=BATCH)
        Case.objects.bulk_create([case for case in self.cases if case.parent is not None], batch_size=BATCH)
        frozen = Case.workloads.through
        frozen.objects.bulk_create(
            [frozen(case_id=case.pk, workload_id=work.pk) for case, works in self.frozen for work in works],
            batch_size=BATCH,
        )
        Evidence.objects.bulk_create(self.evidence, batch_size=500)
        Repair.objects.bulk_create(self.repairs, batch_size=500)
        Step.objects.bulk_create(self.steps, batch_size=BATCH)
        Call.objects.bulk_create(self.calls, batch_size=BATCH)
        Occupancy.objects.bulk_create(self.occupancy, batch_size=BATCH)
        Launch.objects.bulk_create(self.launches, batch_size=BATCH)
        Decision.objects.bulk_create(self.decisions, batch_size=BATCH)
        self.told.sort(key=lambda told: told.at)  # a row's number follows its time, as it does in life
        AuditRow.objects.bulk_create(map(_audit_row, self.told), batch_size=BATCH)

    @staticmethod
    def seal() -> None:
        """Link the rows to the chain. Call once their transaction has committed."""
        while chain.seal():
            pass


def _audit_row(told: Told) -> AuditRow:
    payload = {**told.payload, **({"call": told.call.pk} if told.call else {})}
    on, subject = told.instance, told.subject
    return AuditRow(
        at=told.at, user=told.actor.user, actor=told.actor.name, via=told.actor.via, verb=told.verb,
        subject=f"{type(subject).__name__.lower()}:{subject.pk}", account=on.account.account_id if on else "",
        region=on.region if on else "", instance=on.instance_id if on else "",
        case_id=told.case.pk if told.case else None, repair_id=told.repair.pk if told.repair else None,
        summary=told.summary, payload=payload, payload_hash=digest(payload), request_id=told.actor.request_id,
    )  # fmt: skip

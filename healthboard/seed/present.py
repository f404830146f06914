"""What is wrong right now: cases that wait, repairs under way, one storm, a job that stands still, blind spots."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from healthboard.audit.record import digest
from healthboard.cases.models import Case
from healthboard.fleet.models import JobStop
from healthboard.people.actors import POLICY, WORKER, Actor
from healthboard.repairs.models import Breaker
from healthboard.seed import cases, repairs, signals
from healthboard.seed.cases import Fault, Reader
from healthboard.seed.machines import Machine
from healthboard.seed.rows import Rows, Told

#: (fault, its stage, share of the fleet, fewest)
OPEN = (
    ("XID_119", "WAITING", 0.0012, 2), ("XID_109", "WAITING", 0.0008, 1), ("XID_74", "WAITING", 0.0005, 1),
    ("EC2_INSTANCE_IMPAIRED", "WAITING", 0.0003, 0), ("XID_119", "SNOOZED", 0.0003, 1), ("XID_79", "RUNNING", 0.0006, 1),
    ("XID_95", "ASKING", 0.0003, 1), ("ROW_REMAP_FAILURE", "OBSERVED", 0.0004, 1),
)  # fmt: skip
#: (fault, share): shown on the instance, and no case
QUIET = (("ROW_REMAP_PENDING", 0.004), ("XID_31", 0.003), ("XID_63", 0.002), ("MONITORING_GAP", 0.0008))


@dataclass(slots=True)
class Present:
    rows: Rows
    reader: Reader
    rng: random.Random
    people: list[Actor]
    now: datetime
    size: int
    faults: dict[int, Fault] = field(default_factory=dict)  # by id of the machine: what its readings tell

    def fill(self, fresh: list[Machine], live: list[Machine]) -> list[tuple[Case, Fault]]:
        """Takes machines out of `fresh`, those of `live` that have no story yet; returns the cases whose plans are to
        be built once the fleet is written."""
        made = []
        for code, stage, share, fewest in OPEN:
            for _ in range(max(fewest, round(self.size * share))):
                if found := self._open(fresh, code, stage):
                    made.append(found)
        made += self._storm(fresh)
        self._aftermath(fresh, live, [fault for _, fault in made])
        for code, share in QUIET:
            for _ in range(max(1, round(self.size * share))):
                if one := self._take(fresh, lambda m: m.row.owner != "ECS"):
                    self._read(one, code, self.now - timedelta(minutes=self.rng.uniform(50, 500)))
        return made

    def _take(self, fresh: list[Machine], fits: Any) -> Machine | None:
        at = [n for n, one in enumerate(fresh) if fits(one)]
        return fresh.pop(self.rng.choice(at)) if at else None

    def _read(self, one: Machine, code: str, at: datetime) -> Fault:
        """The fault as it is read now, and the machine's columns that show it."""
        at = max(at, one.booted_at + timedelta(minutes=10))
        fault = self.reader.read(one, code, at, self.now - at)
        signals.show(one, signals.fault_of(code), fault.gpu, at)
        a, row = fault.seen.assessment, one.row
        row.verdict, row.verdict_code = str(a.verdict), a.codes[0] if a.codes else ""
        row.verdict_why, row.verdict_since, row.evidence_at = a.why, at, at
        self.faults[id(one)] = fault
        return fault

    def _open(self, fresh: list[Machine], code: str, stage: str) -> tuple[Case, Fault] | None:
        managed = stage == "OBSERVED"
        repaired = stage in ("RUNNING", "ASKING")
        used = {repair.pool.name for repair in self.rows.repairs if repair.closed_at is None} if repaired else set()

        def fits(m: Machine) -> bool:
            return (m.row.owner == "ECS") is managed and bool(m.tasks) and m.row.pool.name not in used

        stops = stage == "RUNNING" and not self.rows.stops  # one that a job rests on
        one = self._take(fresh, lambda m: fits(m) and m.tasks[0].job) if stops else None
        one = one or self._take(fresh, fits)
        if one is None:
            return None
        at = self.now - timedelta(minutes=self.rng.uniform(4, 200 if not repaired else 12))
        fault = self._read(one, code, at)
        opened = fault.at + cases.SEEN_AFTER
        state = "DECIDED" if repaired else stage
        case = cases.open_case(fault, self.rows, state=state)
        case.opened_at = case.changed_at = case.evidence_at = opened
        self.rows.told[-1].at = opened
        if stage == "WAITING":
            case.expires_at = opened + timedelta(hours=4)
        elif stage == "SNOOZED":
            actor = self.rng.choice(self.people)
            case.snoozed_until = self.now + timedelta(minutes=self.rng.uniform(20, 170))
            cases.decide(case, self.rows, "snooze", self.now - timedelta(minutes=2), actor, reason="The run ends soon")
        elif repaired:
            self._repair(fault, case, stage)
        return case, fault

    def _repair(self, fault: Fault, case: Case, stage: str) -> None:
        row = fault.one.row
        allowed = fault.judged.mode == "auto" and fault.seen.assessment.may_act
        actor = POLICY if allowed else self.rng.choice(self.people)
        repair = repairs.begin(fault, self.rows, case.opened_at + timedelta(seconds=2), actor)
        until = "replacement" if repair.action == "REPLACE" else "tasks"
        at = repairs.walk(repair, self.rows, self.rng, fault.one.home.size, until=until)
        cases.decide(
            case, self.rows, "auto" if allowed else "approve", repair.opened_at, actor, repair=repair,
            outcome="DONE" if allowed else "PENDING",
        )  # fmt: skip
        row.ecs_status = "DRAINING"
        row.group_state = "Standby" if row.group_name and repair.action == "REPLACE" else row.group_state
        repair.next_at, case.changed_at = self.now + timedelta(minutes=10), self.now
        if stage == "ASKING":
            repairs.ask(repair, self.rows, max(at, self.now - timedelta(minutes=1)),
                        "One protected task has not left for 30 minutes")  # fmt: skip

    def _storm(self, fresh: list[Machine]) -> list[tuple[Case, Fault]]:
        """The same fault on several machines of one zone: one case for all, and the breaker that holds them."""
        scopes: dict[tuple[int, str], list[Machine]] = {}
        for one in fresh:
            if one.row.owner == "GROUP" and one.tasks:
                scopes.setdefault((id(one.home), one.row.zone), []).append(one)
        members = max(scopes.values(), key=len, default=[])[:5]  # of equal ones the first
        if len(members) < 3:
            return []
        home, zone = members[0].home, members[0].row.zone
        begun = self.now - timedelta(minutes=25)
        faults = [self._read(one, "XID_143", begun + timedelta(seconds=40 * n)) for n, one in enumerate(members)]
        for one in members:
            fresh.remove(one)
        why = f"XID_143 on {len(members)} instances of zone {zone} within 10 minutes"
        place = {"account": home.pool.account, "region": home.pool.region}
        breaker = Breaker(**place, kind="CORRELATED", scope_kind="zone", scope=zone, why=why, opened_at=begun)
        self.rows.breakers.append(breaker)
        group = Case(
            **place, pool=home.pool, breaker=breaker, state="WAITING", verdict="CORRELATED", action="HOLD", mode="ask",
            code="XID_143", codes=["XID_143"], title=f"{len(members)} instances of zone {zone} show XID_143", why=why,
            why_waiting="Automatic repair in this scope stops until a person releases it",
            evidence_hash=digest([["zone", zone], "XID_143"]), opened_at=begun, changed_at=begun, evidence_at=begun,
            plan={"sentence": "Nothing is repaired in this scope until it is released. Releasing makes each member a "
                  "case of its own, repaired under the budget.", "action": "HOLD"},
        )  # fmt: skip
        self.rows.cases.append(group)
        self.rows.told.append(Told(begun, "breaker.opened", why, WORKER, breaker, payload={"scope": ["zone", zone]}))
        cases.tell(self.rows, group, begun, "case.opened", f"{group.title}: {why}", WORKER)
        held = []
        for fault in faults:
            case = cases.open_case(fault, self.rows, state="HELD", parent=group, breaker=breaker, why_waiting=why)
            case.opened_at = case.changed_at = case.evidence_at = fault.at + cases.SEEN_AFTER
            self.rows.told[-1].at = case.opened_at
            held.append((case, fault))
        return held

    def _aftermath(self, fresh: list[Machine], live: list[Machine], faults: list[Fault]) -> None:
        """Mates of a job whose one node broke: their tasks stop, and their kernels say only that."""
        root = next((f for f in faults if f.code == "XID_79" and f.one.tasks and f.one.tasks[0].job), None)
        if root is None:
            return
        job = root.one.tasks[0].job
        mates = [m for m in live if m.tasks and m.tasks[0].job == job and m is not root.one]
        for mate in mates:
            if mate in fresh:
                fresh.remove(mate)
                self._read(mate, "XID_45", root.at + timedelta(seconds=self.rng.uniform(2, 40)))
        case = next(case for case in self.rows.cases if case.instance is root.one.row)
        case.victims = sorted(mate.row.instance_id for mate in mates)
        nodes = {one.row.instance_id: sum(task.gpus for task in one.tasks) for one in (root.one, *mates)}
        place = {"account": root.one.row.account, "region": root.one.row.region, "cluster": root.one.row.cluster}
        family = root.one.tasks[0].family
        at = root.at + timedelta(seconds=45)
        self.rows.stops.append(JobStop(**place, name=job, family=family, nodes=nodes, left=0, at=at))
        for one in (root.one, *mates):  # its tasks have stopped together
            one.tasks, one.row.tasks_running = [], 0

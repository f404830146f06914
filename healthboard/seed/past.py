"""What happened in a pool over the last days: faults, who answered them, and how it ended."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from healthboard.people.actors import EVIDENCE, POLICY, WORKER, Actor
from healthboard.seed import cases, repairs, signals
from healthboard.seed.cases import Fault, Reader
from healthboard.seed.machines import Machine, boot, machine, start
from healthboard.seed.rows import Rows, Told

#: fault -> how often it comes, among the others
OFTEN = {
    "XID_79": 20, "XID_119": 14, "XID_48": 8, "XID_95": 8, "XID_109": 8, "ROW_REMAP_FAILURE": 7, "XID_74": 7,
    "XID_62": 4, "XID_143": 3, "XID_120": 4, "EC2_SYSTEM_IMPAIRED": 6, "EC2_INSTANCE_IMPAIRED": 4,
    "ECS_CONTAINER_RUNTIME_IMPAIRED": 4, "XID_136": 3,
}  # fmt: skip
#: faults of one instance in a day
RATE = 0.005
#: what happened later than this is still open, and is no part of the past
OVER = timedelta(hours=4)
REASONS = {
    "dismiss": ("Driver bug, fixed by 580.95", "Our own test", "Seen before, harmless on this model"),
    "approve": ("", "", "As last time"),
    "override": ("A reboot did not help last time", "The job ends at noon: replace it now"),
}


@dataclass(slots=True)
class Past:
    """Writes the past of one pool after the other into `rows`; `fresh` machines have no story yet."""

    rows: Rows
    reader: Reader
    rng: random.Random
    people: list[Actor]
    now: datetime
    days: int

    def of(self, fresh: list[Machine]) -> None:
        """One fault after the other in a pool: its budget was never exceeded. Takes machines out of `fresh`."""
        home = fresh[0].home
        free = self.now - timedelta(days=self.days)
        for at in self._times(len(fresh)):
            at = max(at, free)
            if at > self.now - OVER or len(fresh) <= len(home.workloads):
                return
            free = self._one(fresh, at) + timedelta(minutes=5)

    def _times(self, size: int) -> Iterator[datetime]:
        count = max(1, round(size * self.days * RATE * self.rng.uniform(0.7, 1.3)))
        yield from sorted(self.now - timedelta(days=self.days * self.rng.random()) for _ in range(count))

    def _one(self, fresh: list[Machine], at: datetime) -> datetime:
        one = fresh.pop(self.rng.randrange(len(fresh)))
        code = self.rng.choices(list(OFTEN), list(OFTEN.values()))[0]
        if self._answer(code, one) in ("replace", "watch", "ecs"):
            return self._replaced(one, code, at)
        return self._stayed(one, code, at)

    def _answer(self, code: str, one: Machine) -> str:
        if one.row.owner == "ECS":
            return "ecs"
        action = signals.fault_of(code).action
        return "replace" if action == "REPLACE" or self.rng.random() < 0.15 else "stay"

    def _replaced(self, new: Machine, code: str, at: datetime) -> datetime:
        """`new` serves in the place of a machine that is gone."""
        old = machine(new.home, self.rng.randrange(999), self.rng, self.now)
        start(old.row, at - timedelta(days=self.rng.uniform(2, 40)), self.rng)
        old.workloads, old.row.zone = new.workloads, new.row.zone
        fault = self.reader.read(old, code, at)
        case = cases.open_case(fault, self.rows, state="DECIDED")
        if old.row.owner == "ECS":
            done = fault.seen.at + timedelta(minutes=self.rng.uniform(6, 15))
            cases.close(case, self.rows, "REPLACED_BY_ECS", "ECS replaced it", done, WORKER)
        else:
            done = self._repaired(fault, case, new)
        self._gone(old, fault, done)
        start(new.row, min(fault.seen.at + timedelta(minutes=3), done), self.rng)
        return done

    def _repaired(self, fault: Fault, case, new: Machine) -> datetime:
        actor, at, kind = self._who(fault)
        action = "REPLACE"
        if kind == "approve" and fault.judged.action != action:
            kind = "override"
        repair = repairs.begin(fault, self.rows, at, actor, action)
        reason = self.rng.choice(REASONS.get(kind, ("",)))
        done = repairs.walk(repair, self.rows, self.rng, new.home.size)
        watched = bool(repair.facts.get("watch"))
        outcome = "REPLACED_BY_GROUP" if watched else "REPLACED"
        note = "its group replaced it" if watched else "the replacement serves, the old machine is terminated"
        cases.decide(case, self.rows, kind, at, actor, reason=reason, repair=repair, action=action, outcome_why=note)
        if not watched:
            repairs.replaced_by(repair, self.rows, new.row, at + timedelta(minutes=2))
        repairs.end(repair, self.rows, done, outcome, note)
        cases.close(case, self.rows, outcome if watched else "REPAIRED", note, done + timedelta(seconds=1), WORKER)
        return done

    def _gone(self, old: Machine, fault: Fault, at: datetime) -> None:
        row, card = old.row, old.gpus[fault.gpu]
        row.state, row.ecs_status, row.agent_connected, row.tasks_running = "terminated", "INACTIVE", None, 0
        row.gone_at = row.seen_at = row.node_seen_at = at
        row.verdict, row.verdict_code = str(fault.seen.assessment.verdict), fault.code
        self.rows.instances.append(row)
        if signals.fault_of(fault.code).ends == "host" and fault.events:
            card.status, card.condemned_at, card.condemned_why = "lost", at, f"{fault.code}: given back as broken"
            self.rows.gpus.append(card)
            self.rows.told.append(
                Told(at, "gpu.condemned", f"{card.uuid} condemned: {fault.code}", WORKER, card, row,
                     payload={"uuid": card.uuid, "serial": card.serial})
            )  # fmt: skip

    def _stayed(self, one: Machine, code: str, at: datetime) -> datetime:
        """The machine is still there: rebooted, dismissed, or clear by itself."""
        start(one.row, at - timedelta(days=self.rng.uniform(1, 30)), self.rng)
        fault = self.reader.read(one, code, at)
        case = cases.open_case(fault, self.rows, state="DECIDED")
        actor, decided, kind = self._who(fault)
        if kind != "auto" and self.rng.random() < 0.45 and at < self.now - timedelta(days=4):
            return self._let_be(fault, case, actor, decided)
        repair = repairs.begin(fault, self.rows, decided, actor, "REBOOT")
        kind = "override" if kind == "approve" and fault.judged.action != "REBOOT" else kind
        done = repairs.walk(repair, self.rows, self.rng, one.home.size)
        note = "the new boot is good"
        reason = self.rng.choice(REASONS["override"]) if kind == "override" else ""
        cases.decide(
            case, self.rows, kind, decided, actor, reason=reason, repair=repair, action="REBOOT", outcome_why=note
        )
        repairs.end(repair, self.rows, done, "REBOOTED", note)
        cases.close(case, self.rows, "REPAIRED", note, done + timedelta(seconds=1), WORKER)
        boot(one.row, decided + timedelta(minutes=4), self.rng)
        return done

    def _let_be(self, fault: Fault, case, actor: Actor, at: datetime) -> datetime:
        if self.rng.random() < 0.5:
            reason = self.rng.choice(REASONS["dismiss"])
            cases.decide(case, self.rows, "dismiss", at, actor, reason=reason)
            cases.close(case, self.rows, "DISMISSED", reason, at + timedelta(seconds=1), actor)
        else:
            cases.close(case, self.rows, "CLEARED", "the evidence cleared by itself", at, EVIDENCE)
        return at

    def _who(self, fault: Fault) -> tuple[Actor, datetime, str]:
        """Who answered, when and how: the policy at once where it may, else a person some minutes later."""
        read = fault.seen.assessment
        if fault.judged.mode == "auto" and read.may_act and read.verdict == "HARDWARE":
            return POLICY, fault.seen.at + timedelta(seconds=2), "auto"
        return (
            self.rng.choice(self.people),
            fault.seen.at + timedelta(minutes=self.rng.expovariate(1 / 9) + 0.5),
            "approve",
        )

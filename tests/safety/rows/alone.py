"""Rows whose harm is not a process's death: the whole loop in one process (`tests.repairs.driver`), seeded."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction

from healthboard import aws, clock, wake
from healthboard.audit import chain
from healthboard.cases import invariants
from healthboard.cases.models import Case
from healthboard.diagnosis.signals import Event
from healthboard.fleet import record
from healthboard.people.actors import system
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Breaker, Repair
from tests import factories, two
from tests.audit import tamper
from tests.repairs.driver import Drive, person
from tests.safety.conductor import seeded, settle_limits
from tests.safety.site import Site

#: 30 minutes of AWS
OUTAGE_S = 60
#: one round of every source, one after the other, and one look at all cases
CYCLE_S = 30
#: the rounds in which sources that were blind are watched first
AGAIN_S = 30


@contextmanager
def driven(site: Site, pools: str, make: type[Drive] = Drive) -> Iterator[Any]:
    """A begun fleet on the trial's database."""
    shutil.rmtree(site.home / "sandbox", ignore_errors=True)
    wake._quiet_until = float("inf")  # nothing waits for a broker here
    aws._clients = {}
    drive = make(site.home, pools)
    settle_limits(lambda: drive.offset)
    drive.begin()
    try:
        yield drive
    finally:
        drive.stop()


def result(broken: list[str], **more: Any) -> dict[str, Any]:
    return {"broken": [*broken, *invariants.check()], "reached": 1, "recovery": 0, **more}


def aws_down(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """T7: while AWS is off or throttles, nothing new starts; afterwards what was held is done."""
    rng = seeded("T7", spec["seed"])
    broken = []
    with driven(site, "solo=template:4") as drive:
        first, second = drive.machine("solo", 0), drive.machine("solo", 1)
        drive.inject(first, "XID_79", 0)
        drive.steps(rng.randrange(4, 30))
        drive.fleet.engine.sandbox.set_mode(spec["point"])
        drive.inject(second, "XID_95", 0)
        drive.steps(OUTAGE_S)
        if drive.calls(second):
            broken.append(f"changed {second.id} while AWS did not answer: {dict(drive.calls(second))}")
        drive.fleet.engine.sandbox.set_mode("ok")
        released(drive)
        drive.hands.append(answered)
        for machine in (first, second):
            done = drive.repaired(machine, within=600)
            if done.state != "SUCCEEDED":
                broken.append(f"with AWS back, {done} ended as {done.state} {done.outcome}: {done.outcome_why}")
        return result(broken)


def released(drive: Drive) -> None:
    """A person releases what latched, once the sources can see again."""
    drive.steps(10)
    for breaker in Breaker.objects.filter(released_at=None):
        two.release_breaker(breaker.pk, person("admin"), "AWS answers again")


def answered() -> None:
    """What waited too long meanwhile asks; a person has it go on."""
    for repair in Repair.objects.filter(state="ASKING"):
        keys = {c["key"] for c in repair.facts.get("choices", [])} & {"wait_longer", "again"}
        if keys:
            lifecycle.answer(repair.pk, actor=person("operator"), choice=min(keys), reason="AWS answers again")


def ambiguous(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """T8: one call fails in one way, each time it is made for a while: before or after its effect, or emptied."""
    pool, code, operation, mode = spec["point"].split()
    rng = seeded("T8", spec["point"], spec["seed"])
    broken = []
    with driven(site, f"{pool}={'group' if pool == 'train' else 'template'}:3") as drive:
        machine = drive.machine(pool)
        drive.inject(machine, code, 0)
        drive.rules({"operation": operation, "do": mode, "times": rng.choice((1, 2, 4)), "skip": rng.randrange(3)})
        drive.until(lambda: _over(drive, machine), 900)
        made = drive.calls()
        if made["RunInstances"] > 1 and len(drive.fleet.pool(pool)) > 3:
            broken.append(f"{made['RunInstances']} launches, {len(drive.fleet.pool(pool))} machines")
        if drive.calls(machine)["RebootInstances"] > 1:
            broken.append(f"{drive.calls(machine)['RebootInstances']} reboots")
        for other in drive.fleet.pool(pool):
            if other.id != machine.id and drive.calls(other)["TerminateInstances"]:
                broken.append(f"ended the bystander {other.id}")
        if not drive.repair(machine) and drive.case(machine) is None:
            broken.append("the fault was never seen")
        return result(broken)


def _over(drive: Drive, machine: Any) -> bool:
    repair = drive.repair(machine)
    return repair is not None and (bool(repair.closed_at and repair.carried_back_at) or repair.state == "ASKING")


def no_capacity(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """T9: without capacity anywhere the drained machine is kept and a person is told; with it the repair is done."""
    with driven(site, "solo=template:3") as drive:
        machine = drive.machine("solo", seeded("T9", spec["seed"]).randrange(3))
        drive.rules({"operation": "RunInstances", "do": "error", "code": "InsufficientInstanceCapacity", "status": 500})
        drive.inject(machine, "XID_79", 0)
        repair = drive.until(lambda: (r := drive.repair(machine)) and r.state == "ASKING" and r, 900)
        broken = []
        if machine.state != "running" or drive.calls(machine)["TerminateInstances"]:
            broken.append("the drained machine was not kept")
        if "capacity" not in repair.why_waiting.lower():
            broken.append(f"says {repair.why_waiting!r}")
        drive.rules()
        lifecycle.answer(repair.pk, actor=person("operator"), choice="wait_longer", reason="there is some again")
        done = drive.repaired(machine, within=600)
        if done.outcome != "REPLACED":
            broken.append(f"with capacity it ended as {done.outcome}")
        return result(broken)


def storm(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """T10: a share of a pool turns bad within a minute. The breaker opens, nothing is touched, a release goes on."""
    rng, blind = seeded("T10", spec["seed"]), spec["point"] == "blind"
    share = rng.choice((30, 60, 100)) if blind else int(spec["point"].rstrip("%"))
    broken = []
    with driven(site, "solo=template:100") as drive:
        machines = drive.fleet.pool("solo")
        bad = rng.sample(machines, len(machines) * share // 100)
        if blind:
            broken += _unseen(drive, bad, rng)
        else:
            _turns_bad(drive, bad, rng)
        cycle = CYCLE_S + (AGAIN_S if blind else 0)
        drive.until(lambda: Breaker.objects.filter(kind="CORRELATED", released_at=None).exists(), cycle)
        drive.steps(10)
        if drive.calls():
            broken.append(f"changed AWS in a storm: {dict(drive.calls())}")
        if blind:
            return result(broken)
        group = Case.objects.filter(instance=None, closed_at=None).order_by("pk").first()
        two.release_case(group.pk, actor=person("admin"), reason="these hosts are really broken")
        for breaker in Breaker.objects.filter(released_at=None):
            two.release_breaker(breaker.pk, person("admin"), "these hosts are really broken")
        drive.until(lambda: Repair.objects.filter(outcome="REPLACED").exists() or _all_wait(), 300)
        return result(broken)


def _turns_bad(drive: Drive, bad: list[Any], rng: random.Random) -> None:
    """Within two seconds of the trial, a minute at its speed."""
    for half in (bad[::2], bad[1::2]):
        for machine in half:
            drive.inject(machine, "XID_79", rng.randrange(8))
        drive.step()


def _unseen(drive: Drive, bad: list[Any], rng: random.Random) -> list[str]:
    """AWS does not answer and no node's report comes through: nothing happens at all. Then all of them tell again."""
    report, drive.report = drive.report, lambda: None  # type: ignore[method-assign]
    drive.fleet.engine.sandbox.set_mode("off")
    _turns_bad(drive, bad, rng)
    drive.steps(OUTAGE_S)
    broken = [f"changed AWS while blind: {dict(drive.calls())}"] if drive.calls() else []
    if Repair.objects.exists():
        broken.append(f"{Repair.objects.count()} repairs while blind")
    drive.fleet.engine.sandbox.set_mode("ok")
    drive.report = report  # type: ignore[method-assign]
    return broken


def _all_wait() -> bool:
    """Each of them visibly waits for a person."""
    rows = Case.objects.exclude(instance=None).filter(closed_at=None)
    return rows.exists() and all(c.state == "WAITING" and c.why_waiting for c in rows)


def backlog(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """T15: ten thousand old events open nothing; a fresh fault is repaired."""
    rng, count = seeded("T15", spec["seed"]), 10_000
    with driven(site, "solo=template:4") as drive:
        now = clock.now()
        rows = [drive.row(machine) for machine in drive.fleet.pool("solo")]
        for row in rows:
            events = [
                Event(
                    now - timedelta(seconds=rng.uniform(600, 86400)), rng.choice(("XID_79", "XID_95", "XID_64")),
                    "kernel", f"GPU-{row.pk}-{number % 8}", text="an old line", boot_id=row.boot_id, seq=number,
                )
                for number in range(count // len(rows))
            ]  # fmt: skip
            record.record_many("node", now, [record.Item(row, (), events, row.boot_id, 1)])
        drive.steps(40)
        broken = [f"{Case.objects.count()} cases from old events"] if Case.objects.exists() else []
        if drive.calls():
            broken.append(f"changed AWS: {dict(drive.calls())}")
        machine = drive.machine("solo", rng.randrange(4))
        drive.inject(machine, "XID_79", 0)
        if drive.repaired(machine).outcome != "REPLACED":
            broken.append("a fresh fault was not repaired")
        return result(broken)


class _Undone(Exception):
    """Takes the change back by its savepoint."""


def audit(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """T19: each drawn change of the sealed record is found, by the chain or by the head that was kept outside."""
    for number in range(12):
        factories.audit(f"thing.{number}", f"what happened, {number}", by=system("test"), payload={"n": number})
    chain.seal()
    head, broken, size = chain.end().hash, [], 100
    for seed in range(spec["seed"] * size, (spec["seed"] + 1) * size):
        try:
            with transaction.atomic():
                kind = tamper.tamper(seed)
                seen = chain.verify(head)
                if not seen.broken and seen.found:
                    broken.append(f"seed {seed}: {kind} was not found")
                raise _Undone
        except _Undone:
            pass
    return {"broken": broken, "reached": 1, "recovery": 0, "size": size}

"""T12: clocks that are wrong, are set, or come to a rare date. No step comes early, and none comes twice."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from healthboard import clock
from healthboard.api import node_intake
from healthboard.diagnosis.parsed import parse_time
from healthboard.fleet.models import Instance
from healthboard.repairs.models import Repair
from healthboard.sandbox.status import status
from tests.repairs import driver
from tests.repairs.driver import Drive
from tests.safety import checks
from tests.safety.conductor import Conductor, seeded
from tests.safety.flows import Flow
from tests.safety.rows.alone import answered, driven, result
from tests.safety.site import SPEED, Site
from workers.decide import tasks as decide
from workers.repair import tasks as repair

#: the policy's soak here, and how long it lasts on the trial's clock
SOAK_S = 1200
SOAKED_S = SOAK_S / SPEED
TIMES = ("at", "sent_at", "started_at", "finished_at")
DATES = ("2028-02-28T23:59:00", "2028-02-29T23:59:00", "2027-12-31T23:59:00")
FAULTS = (("solo", "XID_79"), ("train", "XID_79"), ("solo", "XID_95"), ("train", "XID_95"))


class Clocks(Drive):
    """AWS's clock is right; the database's and one node's go wrong by so many seconds. Both stages' ticks come round."""

    database, node, off = 0.0, 0.0, ""
    #: seconds of AWS's clock at which the present soak began, for a mark of the repair
    soaking: tuple[str, float] = ("", 0.0)
    #: when leap seconds put the database's clock ahead, by how much
    leapt: tuple[tuple[float, float], ...] = ()

    def _set(self) -> None:
        clock._virtual = datetime.fromtimestamp(self.fleet.clock() + self.database, UTC)

    def take(self, row: Instance, told: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if row.instance_id == self.off:
            told = _moved(json.loads(json.dumps(told)), self.node)
        try:
            return super().take(row, told)
        except node_intake.TooFarAhead:
            return 422, {}

    def step(self, seconds: float = 1.0) -> None:
        decide.sweep()
        super().step(seconds)
        for found in Repair.objects.filter(closed_at=None):
            mark = found.facts.get("serving_since") or found.facts.get("good_since") or ""
            if mark and mark != self.soaking[0]:
                self.soaking = mark, self.fleet.clock()

    def sweep(self) -> None:
        repair.sweep()


def _moved(value: Any, seconds: float, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _moved(v, seconds, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_moved(v, seconds, key) for v in value]
    if key in TIMES and isinstance(value, str):
        return (parse_time(value) + timedelta(seconds=seconds)).isoformat()
    return value


def run(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    what, _, much = spec["point"].partition(" ")
    rng = seeded("T12", spec["point"], spec["seed"])
    pool, code = FAULTS[(spec["seed"] + sum(map(ord, spec["point"]))) % len(FAULTS)]
    if what == "date":
        _begin_at(rng.choice(DATES))
    with driven(site, f"{pool}={'group' if pool == 'train' else 'template'}:3", Clocks) as drive:
        drive.policy(soak_s=SOAK_S)
        machine = drive.machine(pool)
        broken = KINDS[what](drive, machine, code, float(much or 0), rng)
        drive.hands.append(answered)  # what waited too long by a clock that was wrong
        done = drive.repaired(machine, within=900)
        if done.state != "SUCCEEDED":
            broken.append(f"with the clock right it ended as {done.state} {done.outcome}: {done.outcome_why}")
        return result([*broken, *early(drive, machine), *twice(drive, machine)])


def _begin_at(date: str) -> None:
    """The installation begins some time before midnight."""
    base = datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()

    class Then(driver.Still):
        def __init__(self, at: datetime | None = None) -> None:
            self.base, self.offset = base, 0.0

    driver.Still = Then  # type: ignore[misc]


def a_node(drive: Clocks, machine: Any, code: str, much: float, rng: random.Random) -> list[str]:
    """What comes from a node whose clock is wrong is not acted on; once it is right, the fault is."""
    drive.off, drive.node = machine.id, much
    drive.steps(rng.randrange(5, 20))
    drive.inject(machine, code, 0)
    drive.steps(40)
    broken = [f"acted on a time that cannot be: {drive.said()}"] if drive.calls(machine) else []
    drive.node = 0.0
    drive.mend(machine, code)
    drive.steps(20)
    drive.inject(machine, code, 0)
    return broken


def the_database(drive: Clocks, machine: Any, code: str, much: float, rng: random.Random) -> list[str]:
    """Its clock is set in the midst of a repair, and set right again some time later."""
    drive.inject(machine, code, 0)
    drive.until(lambda: drive.repair(machine), 60)
    drive.steps(rng.randrange(60))
    drive.database = much
    drive.steps(rng.randrange(3, 40))
    drive.database = 0.0
    return []


def leap(drive: Clocks, machine: Any, code: str, much: float, rng: random.Random) -> list[str]:
    """A second comes twice, or never, several times in a repair."""
    drive.inject(machine, code, 0)
    drive.until(lambda: drive.repair(machine), 60)
    for _ in range(8):
        drive.steps(rng.randrange(1, 9))
        drive.database -= much
        drive.leapt = (*drive.leapt, (drive.fleet.clock(), -much))
    return []


def date(drive: Clocks, machine: Any, code: str, much: float, rng: random.Random) -> list[str]:
    """The repair runs over midnight into or out of 29 February, or into the new year."""
    drive.steps(rng.randrange(20))
    drive.inject(machine, code, 0)
    return []


KINDS = {"node": a_node, "database": the_database, "leap": leap, "date": date}


def early(drive: Clocks, machine: Any) -> list[str]:
    """Between the begin of the soak and what may come only behind it: as long as the policy says, by AWS's clock, but for
    the leap seconds in between, which no clock can tell from seconds."""
    calls = {c["operation"]: parse_time(c["at"]).timestamp() for c in _log(drive, machine.id)}
    end = calls.get("TerminateInstances", calls.get("ExitStandby", calls.get(checks.DRAIN)))
    if not drive.soaking[0] or end is None:
        return ["nothing soaked"]
    lasted = end - drive.soaking[1] + sum(by for at, by in drive.leapt if drive.soaking[1] <= at < end)
    return (
        [f"went on {lasted:.0f} s after the soak began, which takes {SOAKED_S:.0f} s"] if lasted < SOAKED_S - 1 else []
    )


def twice(drive: Drive, machine: Any) -> list[str]:
    names = [c["operation"] for c in _log(drive, machine.id)]
    most = {"UpdateContainerInstancesState": 2}
    broken = [
        f"{names.count(n)} {n} on {machine.id}" for n in {*names} - checks.REPEATED if names.count(n) > most.get(n, 1)
    ]
    repairs = Repair.objects.filter(instance__instance_id=machine.id, calls__isnull=False).distinct().count()
    return broken if repairs <= 1 else [*broken, f"{repairs} repairs that changed something"]


def _log(drive: Drive, id_: str) -> list[dict[str, str]]:
    with drive.fleet.engine.sandbox.lock:
        calls = status(drive.fleet.engine.sandbox, drive.fleet.url)["calls"]
    return [c for c in calls if c["target"] == id_ and c["operation"] in driver.CHANGING and c["outcome"] == "ok"]


def worker(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    """Two workers, the host's clock of one hours off: it must not matter what it shows."""
    conductor.worker()
    conductor.worker(skew=float(spec["point"]))
    conductor.finish(flow.within_s)
    return {"broken": checks.after(conductor, flow), "reached": 1, "recovery": 0}

"""T11: the fault comes back on the replacement, or after the reboot, or it comes and goes. After as many tries as the
policy allows a person decides, and what that person decides is done."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from healthboard.cases.models import Case
from healthboard.repairs.models import Repair
from tests.repairs.driver import Drive
from tests.safety.conductor import seeded
from tests.safety.rows.alone import driven, result
from tests.safety.site import Site

POOLS = {"solo": "solo=template:3", "train": "train=group:3"}
#: the policy's tries within 24 hours, by default
TRIES = 2
#: seconds in which nothing more may happen once a person is asked
QUIET_S = 25


def run(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    kind, pool = spec["point"].split(" in ")
    rng = seeded("T11", spec["point"], spec["seed"])
    with driven(site, POOLS[pool]) as drive:
        case = KINDS[kind](drive, drive.machine(pool, rng.randrange(3)), rng)
        broken = _asked(drive, case)
        machine = drive.fleet.world.instances[case.instance.instance_id]
        drive.decide(case, "override", action="REPLACE", reason="once more, by hand")
        drive.until(lambda: drive.repair(machine).closed_at or drive.repair(machine).state == "ASKING", 600)
        if drive.repair(machine).outcome != "REPLACED":
            broken.append(f"what a person decided was not done: {drive.said()}")
        return result(broken)


def _asked(drive: Drive, case: Case) -> list[str]:
    broken = []
    tried = Repair.objects.filter(automatic=True, calls__isnull=False).distinct().count()
    if tried > TRIES:
        broken.append(f"{tried} repairs by itself instead of at most {TRIES}")
    made, known = drive.calls(), Repair.objects.count()
    drive.steps(QUIET_S)
    if drive.calls() != made or Repair.objects.count() != known:
        broken.append(f"went on though a person was asked: {drive.said()}")
    return broken


def _waiting(drive: Drive, machine: Any) -> Case | None:
    case = drive.case(machine)
    asked = case is not None and case.state == "WAITING" and "a person decides" in case.why_waiting
    return case if asked else None


def _back_again(drive: Drive, machine: Any) -> Case | None:
    """The case once a person is asked because it shows anew what had gone while it was repaired."""
    case, repair = drive.case(machine), drive.repair(machine)
    if case is None or repair is None or case.state != "WAITING" or case.expires_at is None:
        return None
    why = case.why_waiting.removeprefix("its last repair ended: ")
    return case if repair.state == "CANCELLED" and why == repair.outcome_why else None


def _next(drive: Drive, machine: Any) -> Any:
    return drive.fleet.world.instances[drive.repair(machine).replacement.instance_id]


def same_fault(drive: Drive, machine: Any, rng: random.Random) -> Case:
    drive.inject(machine, "XID_79", rng.randrange(8))
    drive.repaired(machine)
    new = _next(drive, machine)
    drive.steps(rng.randrange(20))
    drive.inject(new, "XID_79", rng.randrange(8))
    return drive.until(lambda: _waiting(drive, new), 120)


def other_faults(drive: Drive, machine: Any, rng: random.Random) -> Case:
    """Each replacement shows another kind of fault: the tries of the place are counted together."""
    for code in ("XID_79", "ROW_REMAP_FAILURE", "XID_95", "XID_79"):
        drive.inject(machine, code, rng.randrange(8))
        drive.until(lambda m=machine: _waiting(drive, m) or ((r := drive.repair(m)) and r.carried_back_at), 900)
        if case := _waiting(drive, machine):
            return case
        machine = _next(drive, machine) if drive.repair(machine).replacement else machine
        drive.steps(rng.randrange(10))
    raise AssertionError(f"nobody was asked: {drive.said()}")


def after_the_reboot(drive: Drive, machine: Any, rng: random.Random) -> Case:
    """The reboot brings the fault up again: the next rung, once; and then its like on the replacement."""
    gpu = rng.randrange(8)
    drive.inject(machine, "XID_95", gpu)
    drive.at_step(machine, "boot")
    drive.inject(machine, "ROW_REMAP_FAILURE", gpu)
    drive.repaired(machine, within=900)
    new = _next(drive, machine)
    drive.steps(rng.randrange(20))
    drive.inject(new, "XID_95", gpu)
    return drive.until(lambda: _waiting(drive, new), 120)


def flapping(drive: Drive, machine: Any, rng: random.Random) -> Case:
    """It shows, its repair begins, it is gone, its repair is undone, and so on."""

    def asked() -> Case | None:
        return _waiting(drive, machine) or _back_again(drive, machine)

    for _ in range(TRIES + 3):
        drive.inject(machine, "XID_154", 0)
        drive.until(lambda: asked() or _begun(drive, machine), 200)
        if case := asked():
            return case
        drive.steps(rng.randrange(3))
        drive.mend(machine, "XID_154")
        drive.until(lambda: drive.repair(machine).carried_back_at, 400)
        drive.steps(rng.randrange(10, 30))
    raise AssertionError(f"nobody was asked: {drive.said()}")


def _begun(drive: Drive, machine: Any) -> bool:
    repair = drive.repair(machine)
    return repair is not None and repair.closed_at is None and repair.calls.exists()


KINDS: dict[str, Callable[[Drive, Any, random.Random], Case]] = {
    "the same fault on the replacement": same_fault,
    "another fault on each replacement": other_faults,
    "again after the reboot": after_the_reboot,
    "flapping": flapping,
}

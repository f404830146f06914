"""T21: forged messages upon a fleet in which people were asked and have answered. What they may do: wake early."""

from __future__ import annotations

import random
from typing import Any

from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case, Decision
from healthboard.celery import app
from healthboard.fleet.models import Instance, Source
from healthboard.repairs.models import Breaker, Call, Repair, Switch
from tests.repairs.driver import Drive
from tests.rights import forged

POOLS = "solo=template:4"


class Scene:
    """One case waits for an answer, another's repair waits for its time. The clock stands: nothing comes due by itself."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        asked, given = drive.machine("solo", 0), drive.machine("solo", 1)
        for machine in (asked, given):
            drive.inject(machine, "XID_119", 0)
        drive.opened(asked)
        drive.decide(drive.opened(given), "override", action="REBOOT", reason="try it")
        drive.working = False
        self.given = given
        self.before = self.now()

    def now(self) -> dict[str, Any]:
        """All that a message could have moved without a person's, the clock's or the evidence's say."""
        return {
            "repairs": list(
                Repair.objects.order_by("pk").values("pk", "state", "step", "action", "allowed", "not_before")
            ),
            "cases": list(Case.objects.order_by("pk").values("pk", "state", "verdict", "mode", "plan_version")),
            "decisions": list(Decision.objects.order_by("pk").values("pk", "kind", "action", "outcome", "actor")),
            "calls": Call.objects.count(),
            "breakers": Breaker.objects.count(),
            "switch": list(Switch.objects.values("acting", "stopped")),
            "changed in AWS": dict(self.drive.calls()),
            "told of repairs": AuditRow.objects.filter(verb__startswith="repair.").count(),
        }

    def ids(self) -> list[int]:
        found = {pk for model in (Repair, Case, Instance, Source) for pk in model.objects.values_list("pk", flat=True)}
        return sorted(found)


def forge(scene: Scene, seed: int, count: int) -> list[str]:
    """Run `count` forged calls through the real tasks, each as a worker runs it: what was wrong, in sentences."""
    rng, names, ids, broken = random.Random(f"T21 {seed}"), forged.tasks(), scene.ids(), []
    for number in range(count):
        name, args, kwargs = forged.call(rng, names, ids)
        try:  # what a worker's tracer calls; its signals would close the connection that a test's transaction is in
            app.tasks[name](*args, **kwargs)
        except Exception as error:
            broken.append(
                f"seed {seed} message {number}: {name}{str(args)[:80]} {str(kwargs)[:80]} raised {error!r}"[:300]
            )
    for what, after in scene.now().items():
        if after != scene.before[what]:
            broken.append(f"seed {seed}: {what} were {scene.before[what]}, are {after}")
    return broken

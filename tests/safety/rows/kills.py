"""T1: the worker is killed at every fault point. T2: and the one that takes over is killed as well."""

from __future__ import annotations

from typing import Any

from healthboard import clock
from tests.safety import checks, classes
from tests.safety.conductor import KILL, Conductor
from tests.safety.flows import Flow

#: sweeps after a kill within which somebody must have taken over what is due
MOST_SWEEPS = 2


class Recovery:
    """Counts the sweeps between a kill and the next claim; only those at which the repair was due."""

    def __init__(self, conductor: Conductor) -> None:
        self.conductor = conductor
        self.fence: int | None = None
        self.waited = self.worst = self.kills = 0
        conductor.reached.append(self.killed)
        conductor.looks.append(self.swept)

    def killed(self, worker: Any) -> None:
        self.kills += 1
        self._look()
        self.fence, self.waited = self.conductor.the_repair().fence, -1  # the sweep that was killed
        self.begin_next()

    def begin_next(self) -> None:
        self.conductor.worker()

    def swept(self) -> None:
        """After each step."""
        if self.fence is not None:
            self.waited += 1
            self._look()

    def _look(self) -> None:
        repair = self.conductor.the_repair()
        if self.fence is None:
            return
        if repair.closed_at is None and repair.fence == self.fence and repair.next_at > clock.now():
            self.waited -= 1  # not due: nobody has to take it
            return
        if repair.closed_at is not None or repair.fence != self.fence:
            self.worst, self.fence = max(self.worst, self.waited), None


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    """One trial; `spec["points"]`: one (name, ordinal) for each worker that is to die."""
    orders = [{"name": name, "ordinal": ordinal, "signal": KILL} for name, ordinal in spec["points"]]
    recovery = Recovery(conductor)
    rest = iter(orders)
    recovery.begin_next = lambda: conductor.worker(**next(rest, {}))  # type: ignore[method-assign]
    recovery.begin_next()
    conductor.finish(flow.within_s)
    broken = checks.after(conductor, flow)
    worst = max(recovery.worst, recovery.waited if recovery.fence is not None else 0)
    if worst > MOST_SWEEPS:
        broken.append(f"taken over only after {worst} sweeps")
    return {"broken": broken, "reached": recovery.kills, "recovery": worst}


def record(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    """The undisturbed run, which must end as the flow says, with its points."""
    path = conductor.site.folder / "points"
    path.unlink(missing_ok=True)
    conductor.worker(record=str(path))
    conductor.finish(flow.within_s)
    broken = checks.after(conductor, flow, asks=frozenset())
    return {"broken": broken, "classes": classes.classes(classes.read(path)), "reached": 1, "recovery": 0,
            "seconds": conductor.offset}  # fmt: skip

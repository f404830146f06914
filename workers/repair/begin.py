"""What is asked before a repair begins to change anything, and never after: whether now is the time for it.

Once it has begun, the machine is on its way out of service; to stand still halfway would only make that longer.
"""

from __future__ import annotations

from healthboard.repairs import opening
from healthboard.repairs.budget import FREE
from healthboard.repairs.recipes import STEPS
from workers.repair.idle import not_idle
from workers.repair.results import PutOff
from workers.repair.run import Run

#: steps that come before the first change; of the others only those that change something begin anything
BEFORE = ("", "recheck", "room", "keep", "idle", "checkpoint")


def may_begin(run: Run) -> PutOff | None:
    """Read before the start and before every step, until something was changed."""
    held = _held(run)
    # a person's word expires, and not in the time in which it must not be carried out
    if not run.repair.automatic and (told := opening.counting(run.repair, held is not None)):
        run.remember(**told)
    return held


def _held(run: Run) -> PutOff | None:
    repair = run.repair
    begins = repair.step in BEFORE or STEPS[repair.step].changes
    if not begins or opening.touched(repair):
        return None
    if repair.action in FREE or repair.facts.get("watch"):
        return None  # nothing is taken from anybody; or its group is about to take it away, drained or not
    shut = opening.closed(repair)
    if shut is None:
        # before it starts, and again at the step and directly before the drain: a job may have begun meanwhile
        return not_idle(run) if repair.step in ("", "idle", "drain") else None
    opens_at = shut.opens.isoformat() if shut.opens else ""
    if run.facts.get("opens_at") != opens_at:
        run.remember(opens_at=opens_at)
    return PutOff(60, shut.why)

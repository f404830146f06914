"""Whether a repair may begin now by its policy's maintenance windows and blackouts, as they are at this moment.

The policy as it is now, not as it was when the repair was decided: who lifts a blackout or shortens a window means the
repairs that wait as well. The workloads of the case count beside those that run there, so that an instance that emptied
meanwhile is still treated as theirs.
"""

from __future__ import annotations

from typing import Any

from healthboard import clock
from healthboard.fleet.models import Workload
from healthboard.policies import windows
from healthboard.policies.matching import settings_for
from healthboard.policies.reading import workloads_of
from healthboard.policies.windows import Closed
from healthboard.repairs.models import WORKLOAD, Repair


def closed(repair: Repair) -> Closed | None:
    """Why it may not begin now and when it may; None where it may."""
    values = settings_for(repair.instance, _workloads(repair)).values
    return windows.closed(values, clock.now())


def touched(repair: Repair) -> bool:
    """Whether it has begun to change anything, or may have: from then on it is carried to its end."""
    return bool(repair.facts.get("inherited_drain")) or repair.calls.exclude(service=WORKLOAD).exists()


def kept(values: dict[str, Any]) -> dict[str, Any]:
    """What a plan keeps of the settings and says of them, so that its page tells what holds it; nothing where nothing
    does."""
    found = {name: values[name] for name in ("windows", "blackouts") if values.get(name)}
    return {**found, "words": windows.when(values)} if found else {}


def _workloads(repair: Repair) -> list[Workload]:
    case = getattr(getattr(repair, "decision", None), "case", None)
    frozen = case.workloads.all() if case is not None else ()
    return sorted({*workloads_of(repair.instance), *frozen}, key=lambda workload: workload.pk)

"""Whether a repair may begin now by its policy's maintenance windows and blackouts, as they are at this moment.

The policy as it is now, not as it was when the repair was decided: who lifts a blackout or shortens a window means the
repairs that wait as well. The workloads of the case count beside those that run there, so that an instance that emptied
meanwhile is still treated as theirs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from healthboard import clock
from healthboard.fleet.models import Instance, Workload
from healthboard.policies import careful, windows
from healthboard.policies.matching import Resolved, settings_for
from healthboard.policies.reading import treated_as, workloads_of
from healthboard.policies.windows import Closed
from healthboard.repairs.models import WORKLOAD, Call, Repair
from healthboard.repairs.states import OPEN

#: outcomes of a call that may have had its effect: none yet, done, and where only reading back can tell
MAY_HAVE_CHANGED = ("", "ok", "unknown")


def closed(repair: Repair) -> Closed | None:
    """Why it may not begin now and when it may; None where it may."""
    return windows.closed(current(repair), clock.now())


def tightened(repair: Repair) -> dict[str, Any]:
    """Its frozen settings where they are the more careful ones, else those of now: what waits for days may meet a stricter
    policy or another workload; what was decided is never loosened."""
    return careful.tightened(repair.settings, current(repair))


def counting(repair: Repair, held: bool) -> dict[str, Any]:
    """What its facts shall say of the time in which it may not begin, which starts or ends now; {} where they say so."""
    kept = repair.facts.get("held") or {}
    if held == bool(kept.get("since")):
        return {}
    return {"held": {"s": held_for(repair).total_seconds(), "since": clock.now().isoformat() if held else ""}}


def held_for(repair: Repair) -> timedelta:
    """How long in all it could not begin for its windows, for what runs on the machine, or for a person's answer."""
    kept = repair.facts.get("held") or {}
    since = datetime.fromisoformat(kept["since"]) if kept.get("since") else clock.now()
    return timedelta(seconds=kept.get("s", 0.0)) + max(clock.now() - since, timedelta(0))


def touched(repair: Repair) -> bool:
    """Whether it has begun to change anything, or may have: from then on it is carried to its end."""
    return bool(repair.facts.get("inherited_drain")) or repair.calls.filter(changing()).exists()


def begun() -> QuerySet[Repair]:
    """The open repairs that are `touched`."""
    made = Exists(Call.objects.filter(changing(), repair=OuterRef("pk")))
    return Repair.objects.filter(made | Q(facts__inherited_drain=True), state__in=OPEN)


def changing(calls: str = "") -> Q:
    """Calls that have changed something, or may have: neither what was only asked of a workload, nor what was not sent or
    what AWS refused. `calls` leads to the calls (``""`` for a queryset of them, else ending in ``__``)."""
    return Q(**{f"{calls}outcome__in": MAY_HAVE_CHANGED}) & ~Q(**{f"{calls}service": WORKLOAD})


def kept(values: dict[str, Any]) -> dict[str, Any]:
    """What a plan keeps of the settings and says of them, so that its page tells what holds it; nothing where nothing
    does."""
    found = {name: values[name] for name in ("windows", "blackouts") if values.get(name)}
    return {**found, "words": windows.when(values)} if found else {}


def current(repair: Repair) -> dict[str, Any]:
    """The settings in force now, as `in_force`."""
    return in_force(repair).values


def in_force(repair: Repair) -> Resolved:
    """What the policies say now, of those that run there, of those of its case, and of the pool where its machine was
    idle when the case opened."""
    instance = Instance.objects.select_related("account", "pool", "cluster").get(pk=repair.instance_id)
    workloads = {*treated_as(instance, workloads_of(instance)), *frozen(repair)}
    return settings_for(instance, sorted(workloads, key=lambda workload: workload.pk if workload else 0))


def frozen(repair: Repair) -> QuerySet[Workload]:
    """What ran there when its case opened: the fault itself often ends the tasks, and they are kept no longer then."""
    return Workload.objects.filter(case__decisions__repair=repair.pk)

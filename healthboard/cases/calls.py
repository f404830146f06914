"""INV6 and what follows from it: each changing call was intended, and what was launched for us belongs to something.

The database says what was intended; in the sandbox AWS's own log says what was done.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, F, Q

from healthboard import clock, config
from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Instance
from healthboard.repairs.models import Call, Repair
from healthboard.repairs.states import OPEN, State

#: what nobody looked at for so long is stuck
STUCK = timedelta(minutes=15)
CHANGING = {
    "RunInstances", "TerminateInstances", "RebootInstances", "StopInstances", "StartInstances",
    "UpdateContainerInstancesState", "DeregisterContainerInstance", "StopTask", "EnterStandby", "ExitStandby",
    "DetachInstances", "AttachInstances", "TerminateInstanceInAutoScalingGroup", "SetDesiredCapacity",
}  # fmt: skip
LAUNCHED_BY = "healthboard:repair"  # tag of a launch: the repair's number


def inv6() -> Iterator[str]:
    late = clock.now() - STUCK
    lost = Call.objects.filter(answered_at=None).filter(~Q(repair__state__in=OPEN) | Q(intended_at__lt=late))
    for call in lost:
        yield f"INV6: {call.operation} on {call.target} (repair {call.repair_id}) has no outcome"
    for call in Call.objects.filter(answered_at__lt=F("intended_at")):
        yield f"INV6: {call.operation} on {call.target} (repair {call.repair_id}) was answered before it was intended"
    yield from _not_told()
    yield from _not_intended()


def _not_told() -> Iterator[str]:
    """Each intent has its row in the audit record, and each such row its intent."""
    calls = dict(Call.objects.values_list("repair_id").annotate(n=Count("pk")).order_by())
    rows = AuditRow.objects.filter(verb="repair.intent").values_list("repair_id")
    told = dict(rows.annotate(n=Count("pk")).order_by())
    for repair in sorted({*calls, *told} - {None}):
        if calls.get(repair, 0) != told.get(repair, 0):
            yield (
                f"INV6: repair {repair} has {calls.get(repair, 0)} intended calls, "
                f"{told.get(repair, 0)} are in the audit record"
            )


def _not_intended() -> Iterator[str]:
    """Calls that AWS saw on instances under our repairs, more often than they were intended."""
    made = _sandbox_log()
    if not made:
        return
    intended = Counter(Call.objects.values_list("operation", "target"))
    launched = Counter(Repair.objects.exclude(replacement=None).values_list("replacement__instance_id", flat=True))
    ours = {*Repair.objects.values_list("instance__instance_id", flat=True), *launched}
    launches = Counter(
        Call.objects.filter(operation="RunInstances").values_list("repair__replacement__instance_id", flat=True)
    )
    for (operation, target), count in made.items():
        if "," in target and ours & set(target.split(",")):
            yield f"INV6: AWS saw {operation} on several instances at once: {target}"
        if target not in ours:
            continue  # somebody else's
        meant = launches[target] if operation == "RunInstances" else intended[operation, target]
        if operation == "RunInstances" and target not in launched:
            continue  # it was there before us
        if count > meant:
            yield f"INV6: AWS saw {count} {operation} on {target}, {meant} were intended"


def orphans() -> Iterator[str]:
    """Instances that were launched for us, and that no repair and no group owns."""
    # the collectors see it within a round; a worker that died before AWS's answer has left "unknown"
    just_ended = Call.objects.filter(
        operation__startswith="Terminate", outcome__in=("ok", "unknown"), answered_at__gt=clock.now() - STUCK
    ).values("target")
    ours = Instance.objects.filter(Q(launched_by_us=True) | Q(tags__has_key=LAUNCHED_BY), gone_at=None, group_name="")
    for one in ours.exclude(state__in=["terminated", "shutting-down"]).exclude(instance_id__in=just_ended):
        number = _repair_of(one)
        if not Repair.objects.filter(
            Q(replacement=one, state__in=[*OPEN, State.SUCCEEDED])
            | Q(instance=one, state__in=OPEN)
            | Q(pk=number, state__in=OPEN)
        ).exists():
            by = f"repair {number}" if number else "a repair"
            yield f"ORPHAN: {one} was launched by {by} and belongs to none, and to no group"


def _repair_of(one: Instance) -> int:
    said = one.tags.get(LAUNCHED_BY, "") if isinstance(one.tags, dict) else ""
    return int(said) if isinstance(said, str) and said.isascii() and said.isdigit() and len(said) < 19 else 0


def _sandbox_log() -> Counter[tuple[str, str]]:
    """Changing calls that the sandbox's AWS carried out; empty where there is no sandbox."""
    if not settings.SANDBOX:
        return Counter()
    try:
        endpoint = (config.run_dir() / "sandbox.url").read_text().strip()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{endpoint}/_sandbox/status", timeout=10) as answer:
            calls = json.load(answer)["calls"]
        return Counter(
            (str(c["operation"]), str(c["target"]))
            for c in calls
            if c["operation"] in CHANGING and c["outcome"] == "ok"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Counter()

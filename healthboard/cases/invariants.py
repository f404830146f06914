"""What must always hold, read from the database (and in the sandbox from AWS's own call log). See docs/invariants.md.

`check()` returns one sentence for each broken invariant and is read-only; the command `check_invariants` and a tick
run it.
"""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, Q

from healthboard import clock, config
from healthboard.audit.models import AuditRow
from healthboard.audit.record import digest
from healthboard.cases.models import Decision
from healthboard.fleet.models import Owner
from healthboard.notices.outbox import announce
from healthboard.repairs.models import Call, Occupancy, Repair
from healthboard.repairs.states import OPEN, State

#: an open repair that nobody looked at for so long is stuck
STUCK = timedelta(minutes=15)
CHANGING = {
    "RunInstances", "TerminateInstances", "RebootInstances", "StopInstances", "StartInstances",
    "UpdateContainerInstancesState", "DeregisterContainerInstance", "StopTask", "EnterStandby", "ExitStandby",
    "DetachInstances", "AttachInstances", "TerminateInstanceInAutoScalingGroup", "SetDesiredCapacity",
}  # fmt: skip
#: exceptions that a named person may allow at the irreversible step
NAMED = {"terminate_first", "force_tasks", "dead_host", "unkillable"}


def check() -> list[str]:
    rules = (inv1, inv2, inv3, inv4, inv5, inv6, inv7, inv8, inv9, payloads)
    return [sentence for rule in rules for sentence in rule()]


def inv1() -> Iterator[str]:
    doubled = Repair.objects.filter(state__in=OPEN).values("instance", "instance__instance_id").annotate(n=Count("pk"))
    for row in doubled.filter(n__gt=1):
        yield f"INV1: {row['n']} open repairs of {row['instance__instance_id']}"


def inv2() -> Iterator[str]:
    for taken in Occupancy.objects.select_related("repair__instance", "pool"):
        if taken.units and taken.out_before + taken.units > taken.allowed:
            yield (
                f"INV2: repair {taken.repair_id} took {taken.pool} to {taken.out_before + taken.units} out "
                f"of {taken.allowed} allowed"
            )
        overlapping = Occupancy.objects.filter(pool=taken.pool, units__gt=0, taken_at__lte=taken.taken_at).filter(
            Q(released_at=None) | Q(released_at__gt=taken.taken_at)
        )
        if taken.units and overlapping.count() > max(taken.allowed, 1):
            yield f"INV2: {overlapping.count()} repairs at once in {taken.pool} at {taken.taken_at:%H:%M:%S}"
    for repair in Repair.objects.exclude(state__in=OPEN).filter(occupancy__released_at=None, occupancy__isnull=False):
        yield f"INV2: closed repair {repair.pk} still holds a unit"


def inv3() -> Iterator[str]:
    ends = Call.objects.filter(operation__in=["TerminateInstances", "DetachInstances"]).select_related(
        "repair__instance"
    )
    for call in ends.prefetch_related("repair__steps"):
        repair = call.repair
        if call.target != repair.instance.instance_id:
            continue  # our own surplus
        done = {
            s.name for s in repair.steps.all() if s.state == "DONE" and s.ended_at and s.ended_at <= call.intended_at
        }
        if "replacement" not in done and "terminate_first" not in repair.allowed:
            yield f"INV3: {call.operation} of {call.target} before its replacement served (repair {repair.pk})"
        if "tasks" not in done and not NAMED & set(repair.allowed):
            yield f"INV3: {call.operation} of {call.target} before its tasks had left (repair {repair.pk})"


def inv4() -> Iterator[str]:
    launches = (
        Call.objects.filter(operation="RunInstances").values("repair_id").annotate(n=Count("token", distinct=True))
    )
    for row in launches.filter(n__gt=1):
        yield f"INV4: repair {row['repair_id']} has {row['n']} launch intents"
    shared = Repair.objects.exclude(replacement=None).values("replacement").annotate(n=Count("pk")).filter(n__gt=1)
    for row in shared:
        yield f"INV4: instance row {row['replacement']} is the replacement of {row['n']} repairs"
    entered = Call.objects.filter(operation="EnterStandby", outcome="ok").values("repair_id").annotate(n=Count("pk"))
    for row in entered.filter(n__gt=1):
        yield f"INV4: repair {row['repair_id']} entered Standby {row['n']} times"


def inv5() -> Iterator[str]:
    people = Decision.objects.filter(kind__in=["approve", "override"]).select_related("case")
    for decision in people.filter(outcome="DONE", repair=None):
        twins = Decision.objects.filter(case=decision.case, action=decision.action, repair__isnull=False)
        if not twins.filter(at__gte=decision.at).exists():  # one of several people: the last one carries the repair
            yield f"INV5: decision {decision.pk} of case {decision.case_id} was not carried out"
    for decision in people.filter(outcome="PENDING", case__state="CLOSED"):
        yield f"INV5: decision {decision.pk} is pending on a closed case"


def inv6() -> Iterator[str]:
    lost = Call.objects.filter(answered_at=None).exclude(repair__state__in=OPEN)
    for call in lost:
        yield f"INV6: {call.operation} on {call.target} (repair {call.repair_id}) has no outcome"
    made = _sandbox_log()
    if made:
        intended = Counter(Call.objects.values_list("operation", "target"))
        launched = Counter(Repair.objects.exclude(replacement=None).values_list("replacement__instance_id", flat=True))
        for (operation, target), count in made.items():
            ours = intended[operation, target]
            if operation == "RunInstances":
                ours = launched[target] and max(
                    Call.objects.filter(operation="RunInstances", repair__replacement__instance_id=target).count(), 1
                )
            if ours and count > ours:
                yield f"INV6: AWS saw {count} {operation} on {target}, {ours} were intended"


def inv7() -> Iterator[str]:
    for decision in Decision.objects.filter(kind="auto").select_related("case"):
        used = decision.case.evidence.filter(hash=decision.evidence_hash).order_by("-at").first()
        if used is None:
            yield f"INV7: decision {decision.pk} rests on evidence that is not kept"
        elif used.verdict != "HARDWARE" and decision.action != "DIAGNOSE" and decision.case.mode != "auto":
            yield f"INV7: decision {decision.pk} was taken by policy on {used.verdict}"


def inv8() -> Iterator[str]:
    late = clock.now() - STUCK
    for repair in Repair.objects.filter(state__in=OPEN).exclude(state=State.ASKING).filter(next_at__lt=late):
        yield f"INV8: repair {repair.pk} of {repair.instance} stands still since {repair.next_at:%Y-%m-%d %H:%M:%S}"
    for repair in Repair.objects.filter(state=State.ASKING, why_waiting=""):
        yield f"INV8: repair {repair.pk} asks without saying what"


def inv9() -> Iterator[str]:
    bad = Call.objects.filter(
        Q(repair__owner__in=[Owner.BATCH, Owner.OTHER, Owner.UNKNOWN]) | Q(repair__instance__is_self=True)
    )
    for call in bad:
        yield f"INV9: {call.operation} on {call.target}, owner {call.repair.owner} (repair {call.repair_id})"


def payloads() -> Iterator[str]:
    for row in AuditRow.objects.exclude(payload=None).order_by("-pk")[:500]:
        if digest(row.payload) != row.payload_hash:
            yield f"AUDIT: the payload of row {row.pk} was changed"


def alarm(broken: list[str]) -> None:
    """Tell operators, once for each hour in which something is broken."""
    announce(
        key=f"invariants-{clock.now():%Y-%m-%d-%H}", kind="invariant", to="operators",
        subject=f"{len(broken)} broken invariants", body="\n".join(broken[:20]), link="/system/",
    )  # fmt: skip


def _sandbox_log() -> Counter[tuple[str, str]]:
    """Changing calls that the sandbox's AWS carried out; empty where there is no sandbox."""
    if not settings.SANDBOX:
        return Counter()
    try:
        endpoint = (config.run_dir() / "sandbox.url").read_text().strip()
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"{endpoint}/_sandbox/status", timeout=10) as answer:
            calls = json.load(answer)["calls"]
    except (OSError, ValueError, KeyError):
        return Counter()
    return Counter((c["operation"], c["target"]) for c in calls if c["operation"] in CHANGING and c["outcome"] == "ok")

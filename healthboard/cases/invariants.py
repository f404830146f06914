"""What must always hold, read from the database and the audit chain. See docs/invariants.md.

`check()` returns one sentence for each broken invariant and is read-only; the command `check_invariants` and a tick
run it. What AWS itself saw is read by `cases.calls`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from django.db import DatabaseError
from django.db.models import Count, Exists, F, OuterRef, Q, Subquery

from healthboard import clock
from healthboard.audit import chain, heads
from healthboard.audit.models import AuditRow
from healthboard.cases import calls
from healthboard.cases.calls import CHANGING, STUCK
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.fleet.models import Owner, Pulse
from healthboard.people.models import Request
from healthboard.repairs import budget, opening
from healthboard.repairs.models import Call, Occupancy, Repair
from healthboard.repairs.states import OPEN, State

__all__ = ["CHANGING", "check"]

log = logging.getLogger(__name__)
#: positions at the end of the audit chain that each check walks
TAIL = 500
#: exceptions that a named person may allow at the irreversible step
NAMED = {"terminate_first", "force_tasks", "dead_host", "unkillable"}


def check() -> list[str]:
    """One sentence for each broken rule. A row so odd that a rule cannot read it breaks that rule, and no other.
    Raises DatabaseError where the database cannot be read."""
    rules = (inv1, inv2, inv3, inv4, inv5, calls.inv6, inv7, inv8, inv9, calls.orphans, audit)
    return [sentence for rule in rules for sentence in _told(rule)]


def _told(rule: Callable[[], Iterator[str]]) -> list[str]:
    told: list[str] = []
    try:
        for sentence in rule():
            told.append(sentence)
    except DatabaseError:
        raise
    except Exception as error:
        log.exception("rule %s", rule.__name__)
        told.append(f"{rule.__name__.upper()}: cannot be read to its end: {type(error).__name__}: {error}")
    return told


def inv1() -> Iterator[str]:
    doubled = Repair.objects.filter(state__in=OPEN).values("instance", "instance__instance_id").annotate(n=Count("pk"))
    for row in doubled.filter(n__gt=1):
        yield f"INV1: {row['n']} open repairs of {row['instance__instance_id']}"


def inv2() -> Iterator[str]:
    held: dict[int, list[Occupancy]] = {}  # by pool: units that are out at the time of the take that is looked at
    taken_in_order = Occupancy.objects.filter(units__gt=0).select_related("pool").order_by("taken_at", "pk")
    for taken in taken_in_order:
        over = _over_budget(taken)
        if taken.out_before + taken.units > taken.allowed + over:
            yield (
                f"INV2: repair {taken.repair_id} took {taken.pool} to {taken.out_before + taken.units} out "
                f"of {taken.allowed} allowed"
            )
        out = held.setdefault(taken.pool_id, [])
        out[:] = [one for one in out if one.released_at is None or one.released_at > taken.taken_at] + [taken]
        if len(out) > max(taken.allowed, 1) + any(one.note == budget.OVER for one in out):
            yield f"INV2: {len(out)} repairs at once in {taken.pool} at {taken.taken_at:%H:%M:%S}"
    for repair in Repair.objects.exclude(state__in=OPEN).filter(occupancy__released_at=None, occupancy__isnull=False):
        yield f"INV2: closed repair {repair.pk} still holds a unit"
    holds = Exists(Occupancy.objects.filter(repair=OuterRef("pk"), released_at=None))
    for repair in opening.begun().exclude(pool=None).exclude(action__in=budget.FREE).exclude(holds):
        yield f"INV2: repair {repair.pk} has begun to change its instance and holds no unit"


def _over_budget(taken: Occupancy) -> int:
    """1 where two people let this repair take one unit more than the budget, else 0."""
    if taken.note != budget.OVER:
        return 0
    rows = Request.objects.filter(kind=budget.OVER, subject=f"repair:{taken.repair_id}", state="CONFIRMED")
    return int(rows.exclude(asked_by=F("answered_by")).exists())


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
        if "replacement" not in done and "terminate_first" not in _words(repair.allowed):
            yield f"INV3: {call.operation} of {call.target} before its replacement served (repair {repair.pk})"
        if "tasks" not in done and not NAMED & _words(repair.allowed):
            yield f"INV3: {call.operation} of {call.target} before its tasks had left (repair {repair.pk})"


def inv4() -> Iterator[str]:
    # one that EC2 refused for want of capacity has launched nothing: the next zone is another intent
    intents = Call.objects.filter(operation="RunInstances", outcome__in=["", "ok", "unknown"])
    launches = intents.values("repair_id").annotate(n=Count("token", distinct=True))
    for row in launches.filter(n__gt=1):
        if row["n"] > 1 + _launched_again(row["repair_id"]):
            yield f"INV4: repair {row['repair_id']} has {row['n']} launch intents"
    shared = Repair.objects.exclude(replacement=None).values("replacement").annotate(n=Count("pk")).filter(n__gt=1)
    for row in shared:
        yield f"INV4: instance row {row['replacement']} is the replacement of {row['n']} repairs"
    entered = Call.objects.filter(operation="EnterStandby", outcome="ok").values("repair_id").annotate(n=Count("pk"))
    for row in entered.filter(n__gt=1):
        yield f"INV4: repair {row['repair_id']} entered Standby {row['n']} times"


def _launched_again(repair: int) -> int:
    """How often a person had another launched in place of one that had ended."""
    told = AuditRow.objects.filter(repair_id=repair)
    ended = told.filter(verb="repair.replacement_ended").count()
    word = Q(payload__choice="launch_again") | Q(payload__isnull=True)  # an old row's payload may be purged
    return min(ended, told.filter(word, verb="repair.answered").count())


def inv5() -> Iterator[str]:
    people = Decision.objects.filter(kind__in=["approve", "override"]).select_related("case")
    for decision in people.filter(outcome="DONE", repair=None):
        twins = Decision.objects.filter(case=decision.case, action=decision.action, repair__isnull=False)
        if not twins.filter(at__gte=decision.at).exists():  # one of several people: the last one carries the repair
            yield f"INV5: decision {decision.pk} of case {decision.case_id} was not carried out"
    for decision in people.filter(outcome="PENDING", case__state="CLOSED"):
        yield f"INV5: decision {decision.pk} is pending on a closed case"
    for decision in people.filter(outcome="REFUSED", outcome_why=""):
        yield f"INV5: decision {decision.pk} of case {decision.case_id} was refused without a reason"


def inv7() -> Iterator[str]:
    kept = Evidence.objects.filter(case=OuterRef("case"), hash=OuterRef("evidence_hash")).order_by("-at")
    rested = Decision.objects.filter(kind="auto").annotate(used=Subquery(kept.values("verdict")[:1]))
    for decision in rested.select_related("case"):
        if decision.used is None:
            yield f"INV7: decision {decision.pk} rests on evidence that is not kept"
        elif decision.used in ("UNKNOWN", "HEALTHY"):
            yield f"INV7: decision {decision.pk} was taken by policy on evidence that reads {decision.used}"
        elif decision.used != "HARDWARE" and decision.action != "DIAGNOSE" and decision.case.mode != "auto":
            yield f"INV7: decision {decision.pk} was taken by policy on {decision.used}"


def inv8() -> Iterator[str]:
    late = clock.now() - STUCK
    for repair in Repair.objects.filter(state__in=OPEN).exclude(state=State.ASKING).filter(next_at__lt=late):
        yield f"INV8: repair {repair.pk} of {repair.instance} stands still since {repair.next_at:%Y-%m-%d %H:%M:%S}"
    for repair in Repair.objects.filter(state=State.ASKING, why_waiting=""):
        yield f"INV8: repair {repair.pk} asks without saying what"
    for repair in Repair.objects.filter(carried_back_at=None, closed_at__lt=late):
        yield f"INV8: repair {repair.pk} ended at {repair.closed_at:%Y-%m-%d %H:%M:%S}, and its case was never told"
    carried = Repair.objects.filter(Q(state__in=OPEN) | Q(carried_back_at=None), decision__case=OuterRef("pk"))
    for case in Case.objects.filter(~Exists(carried), state="DECIDED", changed_at__lt=late):
        yield f"INV8: {case} is decided, and no repair carries it out"


def inv9() -> Iterator[str]:
    bad = Call.objects.filter(
        Q(repair__owner__in=[Owner.BATCH, Owner.OTHER, Owner.UNKNOWN])
        | Q(repair__instance__is_self=True)
        # Managed Instances: drained or returned by a person's word, no more
        | Q(repair__owner=Owner.ECS) & (~Q(operation="UpdateContainerInstancesState") | Q(repair__automatic=True))
    )
    for call in bad.select_related("repair"):
        yield f"INV9: {call.operation} on {call.target}, owner {call.repair.owner} (repair {call.repair_id})"


def audit() -> Iterator[str]:
    """The newest part of the chain; all of it is what `verify_audit` walks."""
    last = chain.end()
    for sentence in chain.verify(since=max(last.position - TAIL, 0) if last else 0).broken:
        yield f"AUDIT: {sentence}"
    if behind := heads.behind():
        yield f"AUDIT: {behind}"
        return
    sealed = Pulse.objects.filter(name="audit").first()
    if sealed is not None and not sealed.ok:
        yield f"AUDIT: {sealed.detail.get('problem') if isinstance(sealed.detail, dict) else 'not sealed'}"
    elif sealed is not None and sealed.at < clock.now() - STUCK:
        yield f"AUDIT: nothing was sealed since {sealed.at:%Y-%m-%d %H:%M:%S}"


def _words(value: Any) -> set[str]:
    """What a JSON list of words holds, whatever else is in it."""
    return {one for one in value if isinstance(one, str)} if isinstance(value, list) else set()

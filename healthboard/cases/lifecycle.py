"""The only writer of cases, evidence and decisions.

What evidence does to a case is in `cases.readings`, what breadth does in `cases.groups`, time and the end of a repair
in `cases.ends`, people in `cases.answers`; they all move and write it through here.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from healthboard import clock, words
from healthboard.audit.record import record
from healthboard.cases import telling
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.cases.states import MOVES, OPEN, Resolution, State
from healthboard.fleet.models import Instance
from healthboard.people.actors import Actor


class IllegalMove(Exception):
    """The state table does not know this move."""


def open_case_of(instance: Instance, *, lock: bool = False) -> Case | None:
    rows = Case.objects.select_for_update() if lock else Case.objects
    return rows.filter(instance=instance, state__in=OPEN).first()


def create(**fields: Any) -> Case:
    """A new case as of now. Call inside a transaction, with its audit row."""
    now = clock.now()
    return Case.objects.create(opened_at=now, changed_at=now, evidence_at=now, **fields)


def keep(case: Case, **fields: Any) -> Evidence:
    """What a reading rested on: append-only."""
    return Evidence.objects.create(case=case, **fields)


def forget(rows: QuerySet[Evidence]) -> int:
    """The one change to what was kept: its inputs go for good; hash, reading and answer stay. For `cases.retention`."""
    return rows.update(inputs={"purged": clock.now().isoformat()})


def decided(case: Case, **fields: Any) -> Decision:
    """A decision on the case as it stands: its plan version and evidence are kept with it."""
    return Decision.objects.create(
        case=case, plan_version=case.plan_version, evidence_hash=case.evidence_hash, at=clock.now(), **fields
    )


def outcome_of(decision: Decision, outcome: str, why: str = "", **fields: Any) -> None:
    Decision.objects.filter(pk=decision.pk).update(outcome=outcome, outcome_why=why[:2000], **fields)


def close(case: Case, resolution: Resolution, note: str, actor: Actor) -> None:
    """Close it with the reason kept apart from the state. Call inside a transaction, the row locked."""
    move(case, State.CLOSED, actor, f"{resolution}: {note}")
    now = clock.now()
    write(case, resolution=str(resolution), resolution_note=note, closed_at=now, why_waiting="", expires_at=None)
    case.decisions.filter(outcome="PENDING").update(outcome="REFUSED", outcome_why=f"the case closed: {note}"[:500])
    telling.follow(
        case, "case_closed", key=f"case-closed-{case.pk}", subject=f"{case.title}: {words.RESOLUTIONS.get(resolution, resolution).lower()}",
        body=note,
    )  # fmt: skip
    if case.parent_id:
        write(case.parent, touch=True)


def move(case: Case, to: State, actor: Actor, why: str) -> None:
    if to not in MOVES[State(case.state)]:
        raise IllegalMove(f"{case.state} -> {to}")
    if not Case.objects.filter(pk=case.pk, state=case.state).update(state=to, changed_at=clock.now()):
        raise IllegalMove(f"case {case.pk} moved meanwhile")
    audit(case, f"case.{to.lower()}", why, actor, before=case.state, after=str(to))
    case.state = to


def write(case: Case, *, touch: bool = True, **fields: Any) -> None:
    if touch:
        fields["changed_at"] = clock.now()
    if fields:
        Case.objects.filter(pk=case.pk).update(**fields)
        for name, value in fields.items():
            setattr(case, name, value)


def audit(case: Case, verb: str, summary: str, actor: Actor, *, repair_id: int | None = None, **payload: Any) -> None:
    record(verb, f"case:{case.pk}", summary, actor=actor, instance=case.instance, case_id=case.pk, repair_id=repair_id,
           payload=payload)  # fmt: skip

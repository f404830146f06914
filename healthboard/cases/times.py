"""When a case went through which hands: first sign, detected, decided, drained, replaced, verified; and how much of its
time it waited for people, apart from what machines took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case, Decision
from healthboard.diagnosis.parsed import parse_time
from healthboard.repairs.models import Repair, Step

#: states in which nothing goes on before a person does something: asked, put off, held until a breaker is released
OF_CASE = {"WAITING": "the case waited for an answer", "SNOOZED": "a person had put it off",
           "HELD": "it was held until a breaker's release"}  # fmt: skip
OF_REPAIR = {"ASKING": "the repair asked and stood still"}
#: step -> the milestone that its end is; a later one of the same milestone counts
_DRAINED, _REPLACED, _VERIFIED = ("drain", "tasks"), ("replacement", "boot", "watch"), ("verify",)
_CARRIED = ("auto", "approve", "override")


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which people were waited for; `until` None: it goes on."""

    why: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Times:
    first_sign: datetime | None  # in the evidence; None where a person asked by hand
    detected: datetime  # the case was opened
    decided: datetime | None  # the first decision that led to an action
    drained: datetime | None  # the last task had left
    replaced: datetime | None  # the replacement served, or the machine was back after its reboot
    verified: datetime | None  # the fault is gone and the pool is as before
    closed: datetime | None
    waits: tuple[Wait, ...]
    human_s: float
    machine_s: float  # the rest, from the first sign to the end

    @property
    def begun(self) -> datetime:
        return min(self.first_sign or self.detected, self.detected)


def of(case: Case, decisions: Sequence[Decision], repairs: Sequence[Repair], rows: Iterable[AuditRow]) -> Times:
    """`decisions` and `repairs` of the case, oldest first, `rows` of both from the record."""
    told = sorted(rows, key=lambda row: row.pk)
    end = case.closed_at or clock.now()
    waits = _of_case(case, decisions, told)
    for repair in repairs:
        of_it = [row for row in told if row.repair_id == repair.pk]
        waits += _waits(of_it, "repair.", "", OF_REPAIR, repair.closed_at)
    first = first_sign(case)
    begun = min(first or case.opened_at, case.opened_at)
    human = _covered([(wait.since, min(wait.until or end, end)) for wait in waits])
    last = repairs[-1] if repairs else None
    steps = list(last.steps.all()) if last else []
    return Times(
        first, case.opened_at, next((d.at for d in decisions if d.kind in _CARRIED and d.undone_at is None), None),
        _ended(steps, _DRAINED), _ended(steps, _REPLACED), _verified(last, steps), case.closed_at,
        tuple(sorted(waits, key=lambda wait: wait.since)), human, max((end - begun).total_seconds() - human, 0),
    )  # fmt: skip


def first_sign(case: Case) -> datetime | None:
    """When the first of the findings that the case was opened on began; None for what a person asked for."""
    if case.by_hand:
        return None
    kept = case.evidence.order_by("pk").values_list("assessment", flat=True).first() or {}
    return earliest(kept, case.code)


def earliest(assessment: dict[str, Any], code: str) -> datetime | None:
    """Of the decisive finding, else of any."""
    findings = assessment.get("findings") or []
    own = [f for f in findings if f.get("code") == code] or findings
    return min((at for f in own if (at := parse_time(f.get("first")))), default=None)


def _of_case(case: Case, decisions: Sequence[Decision], told: list[AuditRow]) -> list[Wait]:
    moves = [row for row in told if row.case_id == case.pk]
    first = next((row for row in moves if _state(row, "case.") and row.verb != "case.opened"), None)
    before = (first.payload or {}).get("before") if first else case.state
    begun = before or ("WAITING" if case.mode == "ask" else "OBSERVED")
    waits = _waits(moves, "case.", begun, OF_CASE, case.closed_at, since=case.opened_at)
    # what the policy itself ended was its own pause (another look, breadth), and nobody had been asked
    own = [d.at for d in decisions if d.kind == "auto"]
    return [w for w in waits if w.why != OF_CASE["WAITING"] or w.until is None or not any(w.since <= at <= w.until for at in own)]  # fmt: skip


def _waits(
    rows: Iterable[AuditRow], prefix: str, begun: str, which: dict[str, str], end: datetime | None, *,
    since: datetime | None = None,
) -> list[Wait]:  # fmt: skip
    found, state, at = [], begun, since
    for row in rows:
        now = _state(row, prefix)
        if not now:
            continue
        if state in which and at is not None:
            found.append(Wait(which[state], at, row.at))
        state, at = now, row.at
    if state in which and at is not None:
        found.append(Wait(which[state], at, end))
    return [wait for wait in found if wait.until is None or wait.until > wait.since]


_STATES = {
    "case.": ("WAITING", "OBSERVED", "HELD", "SNOOZED", "DECIDED", "CLOSED"),
    "repair.": ("SCHEDULED", "RUNNING", "ASKING", "UNDOING", "SUCCEEDED", "FAILED", "CANCELLED"),
}


def _state(row: AuditRow, prefix: str) -> str:
    """The state that a row of the record tells a move to, or nothing."""
    word = row.verb.removeprefix(prefix).upper() if row.verb.startswith(prefix) else ""
    # a repair's `waiting` is a note of why, and no state of it
    return word if word in _STATES[prefix] else ""


def _covered(spans: list[tuple[datetime, datetime]]) -> float:
    """Seconds that at least one of the spans covers."""
    total, until = 0.0, None
    for begin, end in sorted(spans):
        begin = max(begin, until) if until else begin
        if end > begin:
            total += (end - begin).total_seconds()
            until = end
    return total


def _ended(steps: list[Step], names: tuple[str, ...]) -> datetime | None:
    return max((s.ended_at for s in steps if s.name in names and s.state == "DONE" and s.ended_at), default=None)


def _verified(repair: Repair | None, steps: list[Step]) -> datetime | None:
    return (_ended(steps, _VERIFIED) or repair.closed_at) if repair and repair.state == "SUCCEEDED" else None

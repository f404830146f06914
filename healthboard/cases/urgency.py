"""Which of the waiting cases comes first, and why, in words that stand in its row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from healthboard import clock, words
from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case
from healthboard.cases.standstill import Standstill
from healthboard.fleet.models import HealthEvent

SOON = timedelta(minutes=10)
#: what came again so lately makes a case worse; an escalation does for longer
AGAIN, ESCALATED = timedelta(minutes=10), timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a row stands where it stands. `tone` is a CSS class and `icon` a symbol's name."""

    text: str
    tone: str
    icon: str


def worsening(cases: Iterable[Case]) -> dict[int, str]:
    """case id -> in which way it gets worse, in words. Two queries, however many cases."""
    rows = [case for case in cases if case.instance_id is not None]
    if not rows:
        return {}
    now, found = clock.now(), {}
    by_instance = {case.instance_id: case for case in rows}
    events = HealthEvent.objects.filter(instance__in=by_instance, last_at__gt=now - AGAIN, backlog=False)
    for pk, code, last_at in events.order_by("last_at").values_list("instance_id", "code", "last_at"):
        case = by_instance[pk]
        if code in case.codes and last_at > case.opened_at + timedelta(seconds=30):
            found[case.pk] = f"{code} again {words.ago(last_at, now)}"
    escalated = AuditRow.objects.filter(
        case_id__in=[case.pk for case in rows], verb="case.escalated", at__gt=now - ESCALATED
    )
    for pk, at in escalated.order_by("at").values_list("case_id", "at"):
        found[pk] = f"became hardware {words.ago(at, now)}"
    return found


def key(row: Any, now: datetime) -> tuple[Any, ...]:
    """Sort key of a `queries.Row`: mine before others', jobs that stand still, about to run out of time, many at once,
    jobs that need the machine, what gets worse, what is broken for certain, what stands on it, the oldest."""
    case: Case = row.case
    left = (case.expires_at - now).total_seconds() if case.expires_at else 1e9
    soon = left < SOON.total_seconds()
    standing: Standstill | None = row.standing
    return (
        row.why_not is not None,
        -(standing.gpus + 1) if standing and standing.idle else 0,
        not soon,
        left if soon else 0,
        case.verdict != "CORRELATED",
        -standing.gpus if standing else 0,
        not row.worse,
        case.verdict != "HARDWARE",
        -(row.tasks * 8 + row.gpus),
        case.opened_at,
    )


def reasons(row: Any, now: datetime) -> list[Reason]:
    """What of `key` speaks for this row, the strongest first; empty where nothing presses."""
    case, standing, found = row.case, row.standing, []
    if standing:
        size = f"{words.count(standing.nodes, 'node')}, {words.count(standing.gpus, 'GPU')}"
        many = len(standing.jobs) > 1
        jobs = words.count(len(standing.jobs) or 1, "job")
        if standing.idle:
            found.append(Reason(f"{jobs} {'stand' if many else 'stands'} still: {size} idle", "bad", "stop"))
        else:
            found.append(Reason(f"{jobs} on {size} {'need' if many else 'needs'} it", "doubt", "links"))
    if case.expires_at and case.expires_at - now < SOON:
        found.append(Reason("time is running out", "bad", "clock"))
    if row.worse:
        found.append(Reason(f"getting worse: {row.worse}", "bad", "diamond"))
    return found

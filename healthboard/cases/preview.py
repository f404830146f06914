"""What a policy that is not saved yet would have done with the recorded evidence of the last days, case by case, beside
what was done. The engine is `cases.replay`, as for the command; nothing is written, which the database itself sees to.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import QuerySet

from healthboard import clock, words
from healthboard.cases import replay
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.policies.fields import BY_NAME

DAYS = (1, 7, 30, 90)
#: pieces of evidence that are decided again, seconds that this may take, and cases that are listed
MOST, SECONDS, SHOWN = 3000, 8.0, 200
#: settings that the recorded answers rest on; the others say when and how a repair runs
DECIDING = (
    "mode_hardware", "mode_ambiguous", "ladder", "tries_24h", "codes", "outside_witness", "witness_wait_s",
    "disconnect_s", "dead_host",
)  # fmt: skip
#: settings that change no repair
SILENT = ("notify",)
#: what a difference says of mode and action, which a line shows in columns of their own
SHOWN_ALREADY = ("policy's mode ", "policy's action ", "verdict ", "action ")


@dataclass(frozen=True, slots=True)
class Said:
    """What a policy said to a piece of evidence. `mode` is empty where it would be no case."""

    verdict: str
    mode: str
    action: str

    @property
    def words(self) -> str:
        if self.verdict not in ("HARDWARE", "AMBIGUOUS"):
            return (
                f"no case: {words.VERDICTS[self.verdict].word.lower()}" if self.verdict in words.VERDICTS else "no case"
            )
        return f"{words.action(self.action)}: {words.MODES.get(self.mode, self.mode)}"


@dataclass(slots=True)
class Line:
    """One case that would have gone otherwise, by the first evidence of it that is decided otherwise."""

    case: Case
    at: datetime
    then: Said
    now: Said
    why: tuple[str, ...]
    counterfactual: bool
    done: str = ""


@dataclass(slots=True)
class Preview:
    days: int
    since: datetime
    until: datetime
    total: int = 0  # pieces of evidence of that time that the person sees
    looked: int = 0
    cut: str = ""  # in words, where not all was looked at
    cases: int = 0  # that the policy concerns
    alike: int = 0  # of them, decided as they were
    counterfactual: int = 0  # of them, begun after the first change in their pool
    lines: list[Line] = field(default_factory=list)
    more: int = 0  # lines that are not listed
    sums: list[tuple[str, str, int, int]] = field(default_factory=list)  # then, now, cases, of them counterfactual
    unreadable: int = 0
    by_rules: int = 0  # cases that newer rules of healthboard decide otherwise whatever the policy
    running: list[str] = field(default_factory=list)  # titles of changed settings that say how a repair runs


def of(
    see: Callable[..., QuerySet], *policies: Mapping[str, Any], before: Collection[str] = (), days: int = 7,
    most: int = MOST, seconds: float = SECONDS,
) -> Preview:  # fmt: skip
    """`policies`, one or several at once, each as a version would keep it; `before`: what it was called until now; `see`
    narrows to what the person sees (`access.seeing`). At most the newest `most` pieces of evidence, for at most
    `seconds` of wall time."""
    now = clock.now()
    found = Preview(days=days, since=now - timedelta(days=days), until=now)
    instead = replay.Instead(list(policies), frozenset(before))
    with reading_only():
        rows = _rows(see, found, most)
        state = _State(found, instead)
        deadline = time.monotonic() + seconds
        for row in rows.iterator(chunk_size=100):
            if time.monotonic() > deadline:
                found.cut = f"Looked for {seconds:g} s, as far as {row.at:%Y-%m-%d %H:%M} UTC: {found.looked} of {found.total} pieces of evidence."
                break
            found.looked += 1
            state.look(row)
        state.sum_up()
        _tell_what_was_done(found.lines)
    return found


@contextmanager
def reading_only() -> Iterator[None]:
    """A transaction in which the database refuses every change."""
    if connection.vendor == "sqlite":
        with _deferred(), transaction.atomic():
            yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        yield


@contextmanager
def _deferred() -> Iterator[None]:
    """SQLite: a transaction that begins in here does not take the lock of the one writer, as ours else do at once, so
    that others can write meanwhile."""
    connection.ensure_connection()
    mode, connection.transaction_mode = connection.transaction_mode, "DEFERRED"
    raw = connection.connection  # past Django, which runs nothing in a transaction that has failed
    raw.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        raw.execute("PRAGMA query_only = OFF")
        connection.transaction_mode = mode


def _rows(see: Callable[..., QuerySet], found: Preview, most: int) -> QuerySet[Evidence]:
    rows = see(Evidence.objects.filter(at__gte=found.since, at__lte=found.until), prefix="case__")
    found.total = rows.count()
    if found.total > most:
        oldest = rows.order_by("-at", "-pk").values_list("at", flat=True)[most - 1]
        found.since, rows = oldest, rows.filter(at__gte=oldest)
        found.cut = f"The newest {most} of {found.total} pieces of evidence, from {oldest:%Y-%m-%d %H:%M} UTC on."
    return rows.select_related("case__instance", "case__pool").defer("case__plan").order_by("at", "pk")


class _State:
    """What is known after each piece of evidence, in the order of time."""

    def __init__(self, found: Preview, instead: replay.Instead) -> None:
        self.found, self.instead, self.course = found, instead, replay.Course()
        self.seen: set[int] = set()  # cases that the policy concerns
        self.lines: dict[int, Line] = {}
        self.late: set[int] = set()  # cases that began after the first change in their pool
        self.rules: set[int] = set()
        self.running: dict[str, None] = {}

    def look(self, row: Evidence) -> None:
        try:
            if not self.instead.concerns(row):
                return
            late = self.course.counterfactual(row)
            if late and row.case_id not in self.seen:
                self.late.add(row.case_id)
            self.seen.add(row.case_id)
            self._compare(row, late)
        except (replay.Unreadable, KeyError, TypeError, ValueError, AttributeError):
            self.found.unreadable += 1

    def _compare(self, row: Evidence, late: bool) -> None:
        ours = replay.again(row)
        now = replay.again(row, self.instead, ours)
        told = replay.compare(row, now)
        if told is not None and replay.alike(ours, now):
            self.rules.add(row.case_id)
            told = None
        changed = _runs_otherwise(ours.policy.values, now.policy.values) if ours.policy and now.policy else []
        self.running |= dict.fromkeys(changed)
        if told is not None and row.case_id not in self.lines:
            said = _said(row.assessment, row.answer), _said(now.assessment, now.answer)
            why = tuple(why for why in told.why if not why.startswith(SHOWN_ALREADY))
            self.lines[row.case_id] = Line(row.case, row.at, *said, why, late)
        if told is not None or (changed and now.answer.get("mode") in ("auto", "ask")):
            # also where the repair would only have run otherwise: what came later rests on that
            self.course.change(row)

    def sum_up(self) -> None:
        found = self.found
        found.cases, found.counterfactual, found.by_rules = len(self.seen), len(self.late), len(self.rules)
        found.alike = len(self.seen - self.lines.keys())
        lines = sorted(self.lines.values(), key=lambda line: (line.at, line.case.pk))
        found.lines, found.more = lines[:SHOWN], max(len(lines) - SHOWN, 0)
        found.running = [BY_NAME[name].title for name in self.running]
        every = Counter((line.then.words, line.now.words) for line in lines)
        late = Counter((line.then.words, line.now.words) for line in lines if line.counterfactual)
        found.sums = [(*key, n, late[key]) for key, n in sorted(every.items(), key=lambda kv: (-kv[1], kv[0]))]


def _said(assessment: Mapping[str, Any], answer: Mapping[str, Any]) -> Said:
    return Said(str(assessment.get("verdict", "")), answer.get("mode", ""), answer.get("action", ""))


def _runs_otherwise(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [name for name in now if name not in (*DECIDING, *SILENT) and then.get(name) != now[name]]


def _tell_what_was_done(lines: list[Line]) -> None:
    """One query for all of them."""
    rows = Decision.objects.filter(case__in=[line.case.pk for line in lines], undone_at=None).order_by("at", "pk")
    made: dict[int, list[Decision]] = {}
    for row in rows.select_related("repair"):
        made.setdefault(row.case_id, []).append(row)
    for line in lines:
        line.done = _done(line.case, made.get(line.case.pk, []))


def _done(case: Case, decisions: list[Decision]) -> str:
    said = []
    for row in decisions:
        who = "by policy" if row.kind == Decision.Kind.AUTO else f"{row.get_kind_display()} by {row.actor}"
        said.append(f"{words.action(row.action).lower()} {who}" if row.action else who)
    if case.closed_at is None:
        said.append("still open")
    elif case.resolution:
        said.append(words.RESOLUTIONS.get(case.resolution, case.resolution).lower())
    return "; ".join(said) or "nothing"

"""What is kept for how many days, and the purge of what is older. See docs/decisions/0066-retention.md.

What an open case or repair, or its decision, may still need stays whatever its age. Of decided evidence only the inputs
go: hash, verdict and reading stay, so decisions, reports and figures stand; `replay` says what it cannot decide again.
Audit rows and their hashes stay for ever; only payloads go. Each purge is a row of the record itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from healthboard import clock, config
from healthboard.audit import purge as payloads
from healthboard.audit.record import record
from healthboard.cases import lifecycle
from healthboard.cases.models import Case, Evidence, WouldHave
from healthboard.fleet import recorder
from healthboard.fleet.models import HealthEvent, Instance, Interval, Pulse
from healthboard.notices.models import Delivery, Notice
from healthboard.notices.outbox import Event
from healthboard.people.actors import Actor, system
from healthboard.repairs.models import Breaker, Repair

PURGER = system("retention")
VERB = "retention.purged"
#: rows in one transaction, and seconds for one round: what is left over is for the next
BATCH, LONGEST_S = 1000, 90.0
#: no round comes so soon after a gap or a jump of the clock was noticed: there is time to set a wrong clock right
WATCHED = timedelta(hours=1)
#: nothing younger goes, whatever is set: readings look back a day, and a person a weekend
LEAST_DAYS = 7


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    days: int  # by default; 0 keeps for ever
    words: str

    @property
    def variable(self) -> str:
        return f"HEALTHBOARD_KEEP_{self.name.upper()}_DAYS"

    def kept(self) -> int:
        """Days by the environment. Raises BadSetting."""
        days = int(config.number(self.variable, self.days))
        if 0 < days < LEAST_DAYS:
            raise config.BadSetting(f"{self.variable}={days} must be 0 (for ever) or at least {LEAST_DAYS}")
        return days


KINDS = (
    Kind("evidence", 400, "inputs of what closed cases were decided on"),
    Kind("events", 400, "health events: Xids, changed checks, scheduled events"),
    Kind("intervals", 180, "readings that have ended"),
    Kind("rehearsals", 400, "what would have been done while it was only observed"),
    Kind("recorder", 90, "flight recordings"),
    Kind("notices", 90, "notices of matters that are over, with their deliveries"),
    Kind("audit_payloads", 400, "payloads of audit rows; the rows and their hashes stay"),
)


@dataclass(frozen=True, slots=True)
class Purged:
    kind: Kind
    before: datetime | None  # None: it is kept for ever
    count: int = 0
    more: bool = False  # time was up: the rest is for the next round
    problem: str = ""


def settings() -> dict[str, int]:
    return {kind.name: kind.kept() for kind in KINDS}


def purge(*, actor: Actor = PURGER, dry_run: bool = False, longest_s: float = LONGEST_S) -> list[Purged]:
    """One round over all kinds, in batches. Harmless when doubled. `dry_run` counts and changes nothing."""
    now, end, found = clock.now(), time.monotonic() + longest_s, []
    for kind in KINDS:
        days = kind.kept()
        if not days:
            found.append(Purged(kind, None))
            continue
        before = now - timedelta(days=days)
        found.append(_payloads(kind, before, actor, dry_run, end) if kind.name == "audit_payloads" else
                     _rows(kind, before, actor, dry_run, end))  # fmt: skip
    return found


def watched() -> bool:
    """Whether all began to be watched anew just now, as after a jump of the clock: what is old then may not be."""
    begun = Pulse.objects.filter(name="watch").values_list("at", flat=True).first()
    return begun is not None and clock.now() - begun < WATCHED


def _rows(kind: Kind, before: datetime, actor: Actor, dry_run: bool, end: float) -> Purged:
    old, take = _old()[kind.name]
    rows = old(before)
    if dry_run:
        return Purged(kind, before, rows.count())
    count, more = 0, False
    for part in _parts(rows):
        with transaction.atomic():
            take(rows.model._default_manager.filter(pk__in=part))
        count += len(part)
        if time.monotonic() > end:
            more = rows.exists()
            break
    if count:
        with transaction.atomic():
            record(VERB, f"{kind.name}:{before.date()}", f"{count} {kind.name} older than {before.date()} purged",
                   actor=actor, payload={"kind": kind.name, "before": before.isoformat(), "count": count})  # fmt: skip
    return Purged(kind, before, count, more)


def _parts(rows: QuerySet[Any]) -> Iterator[list[int]]:
    last = 0
    while part := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        yield part
        last = part[-1]


def _payloads(kind: Kind, before: datetime, actor: Actor, dry_run: bool, end: float) -> Purged:
    """Rows of the chain tell until when. A role that does not own the table may not: it is said."""
    keep = Q(case_id__in=_open_cases().values("pk")) | Q(repair_id__in=_open_repairs().values("pk"))
    try:
        if dry_run:
            return Purged(kind, before, payloads.old(before, keep).count())
        return Purged(kind, before, *payloads.purge(before, actor, keep=keep, quiet=True, end=end))
    except DatabaseError as error:
        said = (str(error).strip().splitlines() or ["unknown"])[0]
        return Purged(kind, before, problem=f"the payloads stay: {said}; run manage.py purge as the tables' owner")


def _old() -> dict[str, tuple[Callable[[datetime], QuerySet[Any]], Callable[[QuerySet[Any]], Any]]]:
    """Kind -> what is older and not needed, and what is done to it."""
    return {
        "evidence": (_evidence, lifecycle.forget),
        "events": (_events, lambda rows: rows.delete()),
        "intervals": (_intervals, lambda rows: rows.delete()),
        "rehearsals": (_rehearsals, lambda rows: rows.delete()),
        "recorder": (_recordings, lambda rows: rows.delete()),
        "notices": (_notices, lambda rows: rows.delete()),
    }


def _open_cases() -> QuerySet[Case]:
    return Case.objects.filter(closed_at=None)


def _open_repairs() -> QuerySet[Repair]:
    return Repair.objects.filter(closed_at=None)


def _evidence(before: datetime) -> QuerySet[Evidence]:
    over = Evidence.objects.filter(case__closed_at__lt=before).exclude(inputs={}).exclude(inputs__has_key="purged")
    return over.exclude(case__decisions__repair__in=_open_repairs())


def _rehearsals(before: datetime) -> QuerySet[WouldHave]:
    """Of cases that are over: “ready to switch on?” looks back no further than these."""
    return WouldHave.objects.filter(at__lt=before, case__closed_at__lt=before)


def _not_needed(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Of instances that no open case or repair is about, or names as hit by the same."""
    named = {one for victims in _open_cases().values_list("victims", flat=True) for one in victims}
    rows = rows.exclude(Q(instance__in=_open_cases().exclude(instance=None).values("instance")))
    rows = rows.exclude(Q(instance__in=_open_repairs().values("instance")))
    rows = rows.exclude(Q(instance__in=_open_repairs().exclude(replacement=None).values("replacement")))
    return rows.exclude(instance__in=Instance.objects.filter(instance_id__in=named)) if named else rows


def _events(before: datetime) -> QuerySet[HealthEvent]:
    return _not_needed(HealthEvent.objects.filter(last_at__lt=before).exclude(code=recorder.CODE))


def _recordings(before: datetime) -> QuerySet[HealthEvent]:
    return _not_needed(HealthEvent.objects.filter(last_at__lt=before, code=recorder.CODE))


def _intervals(before: datetime) -> QuerySet[Interval]:
    return _not_needed(Interval.objects.filter(until__lt=before))


def _notices(before: datetime) -> QuerySet[Notice]:
    """Delivered or given up, and of a matter that is over: how it went on is told to whom its beginning was."""
    under_way = Delivery.objects.filter(notice=OuterRef("pk"), state=Delivery.State.PENDING)
    rows = Notice.objects.filter(created_at__lt=before, routed_at__isnull=False).exclude(Exists(under_way))
    open_ = [f"case:{pk}" for pk in _open_cases().values_list("pk", flat=True)]
    open_ += [f"repair:{pk}" for pk in _open_repairs().values_list("pk", flat=True)]
    open_ += [f"breaker:{pk}" for pk in Breaker.objects.filter(released_at=None).values_list("pk", flat=True)]
    resolved = Notice.objects.filter(thread=OuterRef("thread"), event=Event.RESOLVE, pk__gte=OuterRef("pk"))
    known = Q(thread="") | Q(thread__startswith="workload:") | Q(thread__startswith="case:")
    known |= Q(thread__startswith="repair:") | Q(thread__startswith="breaker:")
    return rows.filter(known | Exists(resolved)).exclude(thread__in=open_)

"""Which targets a notice reaches: one delivery row for each, and of an e-mail target for each address and person."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from django.db import transaction

from healthboard import clock
from healthboard.notices.kinds import Event, rank
from healthboard.notices.models import Delivery, Notice, QuietHours, Target
from healthboard.notices.quiet import quiet_until
from healthboard.people import access

#: what was given up is shown, and may be sent again, for so long
GIVEN_UP = timedelta(hours=24)


def targets() -> list[Target]:
    return list(Target.objects.filter(enabled=True).prefetch_related("people__quiet_hours").order_by("name"))


def send_again(target: Target) -> int:
    """What was given up within the last day is due again. Returns how many."""
    now = clock.now()
    rows = Delivery.objects.filter(target=target, state=Delivery.State.FAILED, ended_at__gt=now - GIVEN_UP)
    return rows.update(state=Delivery.State.PENDING, attempts=0, next_at=now, ended_at=None)


@transaction.atomic
def route(notice_id: int, known: Iterable[Target]) -> Notice | None:
    """Make a notice's deliveries, once; None where another worker has done so."""
    now = clock.now()
    if not Notice.objects.filter(pk=notice_id, routed_at=None, next_at__lte=now).update(routed_at=now):
        return None
    notice = Notice.objects.select_related("only").get(pk=notice_id)
    if notice.only:
        chosen = [notice.only]
    else:
        chosen = [] if _taken_up(notice) else [t for t in known if wants(t, notice, told_before(t, notice))]
    rows = [row for target in chosen for row in _deliveries(notice, target, now)]
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return notice


def _taken_up(notice: Notice) -> bool:
    """It was kept back for a while, and meanwhile somebody decided it, or it was held or over."""
    if notice.event != Event.TRIGGER or not notice.thread or notice.next_at <= notice.created_at:
        return False
    later = Notice.objects.filter(thread=notice.thread, pk__gt=notice.pk)
    return later.exclude(event=Event.TRIGGER).exists()


def told_before(target: Target, notice: Notice) -> bool:
    """It was told that this matter began, so it should learn how it went on."""
    if notice.event == Event.TRIGGER or not notice.thread:
        return False
    return Delivery.objects.filter(
        target=target, notice__thread=notice.thread, notice__event=Event.TRIGGER, notice__pk__lt=notice.pk
    ).exists()


def wants(target: Target, notice: Notice, told: bool) -> bool:
    """True where the target listens to one of the receivers and nothing that was chosen for it stands against."""
    if target.kind == Target.Kind.PAGERDUTY and notice.event != Event.TRIGGER:
        return told  # an incident that was opened there is closed there, whatever was chosen since; no other exists
    if notice.kind == "case_held" and not told:
        return False  # of many at once only what they have in common is told
    if target.kinds and notice.kind not in target.kinds and not told:
        return False
    if rank(notice.severity) < rank(target.minimum) and not told:
        return False
    if target.pools and not _any(target.pools, [notice.pool]):
        return False
    if target.workloads and not _any(target.workloads, notice.workloads):
        return False
    if notice.kind == "workload" and target.workloads:
        return True  # it is the owner's
    return bool({target.name, *target.receivers} & set(notice.receivers))


def _any(patterns: list[str], names: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names if name for pattern in patterns)


def _deliveries(notice: Notice, target: Target, now: datetime) -> list[Delivery]:
    if target.kind != Target.Kind.EMAIL:
        return [Delivery(notice=notice, target=target, next_at=now)]
    rows = [Delivery(notice=notice, target=target, to=to, next_at=now) for to in addresses(target) if fits(to)]
    for person in target.people.all():
        if access.why_not(person, "view", account=notice.account, region=notice.region, pool=notice.pool):
            continue  # nobody is told of what they may not see
        until = quiet_for(person, notice, now)
        rows.append(
            Delivery(notice=notice, target=target, person=person, next_at=until or now, put_off=until is not None)
        )
    return rows


def addresses(target: Target) -> list[str]:
    return [part for part in target.address.replace(",", " ").split() if part]


def fits(address: str) -> bool:
    """One that is longer than any real one must not keep the notice from everybody else."""
    return len(address) <= Delivery._meta.get_field("to").max_length


def quiet_for(person: object, notice: Notice, now: datetime) -> datetime | None:
    """Until when this person's e-mail about it waits, or None."""
    hours: QuietHours | None = getattr(person, "quiet_hours", None)
    if hours is None or notice.kind == "test" or (hours.critical_through and notice.severity == "critical"):
        return None
    return quiet_until(now, hours.starts, hours.ends, hours.zone)

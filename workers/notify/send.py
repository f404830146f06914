"""Sends what the outbox holds: first each notice is made into deliveries, then those that are due are tried.

One at a time in the whole installation, and for a bounded time a round: a receiver that hangs never takes more than one
worker process. What fails is tried again with back-off, and given up after `TRIES`; the system page says so.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q

from healthboard import clock
from healthboard.notices import routing
from healthboard.notices.kinds import Event
from healthboard.notices.models import Delivery, Notice, Target
from healthboard.notices.senders import Failed, send
from healthboard.notices.senders.failed import where
from healthboard.people import access

log = logging.getLogger("healthboard.notices")
TRIES = 10
LEASE = timedelta(seconds=90)  # longer than any try can take
FIRST, LONGEST = timedelta(seconds=30), timedelta(hours=1)
ROUND_S = 15.0
KEPT = timedelta(days=90)


def sweep() -> int:
    """Returns how many deliveries were made in this round. Harmless when doubled."""
    make_deliveries()
    forget()
    sent, end = 0, time.monotonic() + ROUND_S
    while time.monotonic() < end:
        row = _claim()
        if row is None:
            break
        sent += _try(row)
    return sent


def make_deliveries() -> None:
    """Each notice is also a line in the worker's log, for whatever collects logs there."""
    due = Notice.objects.filter(routed_at=None, next_at__lte=clock.now()).order_by("pk")
    ids = list(due.values_list("pk", flat=True)[:500])
    known = routing.targets() if ids else []
    for pk in ids:
        notice = _route(pk, known)
        if notice is not None:
            log.warning("notice %s to %s: %s %s", notice.kind, ",".join(notice.receivers), notice.subject, notice.link)


def _route(pk: int, known: list[Target]) -> Notice | None:
    """One that cannot be routed is tried again a little later, and keeps no other from being told."""
    try:
        return routing.route(pk, known)
    except Exception as error:
        log.error("notice %s has no deliveries: %s", pk, where(error))
        Notice.objects.filter(pk=pk, routed_at=None).update(next_at=clock.now() + FIRST)
        return None


def forget() -> None:
    """What was told long ago is not kept: the record of what happened is the audit's."""
    limit = clock.now() - KEPT
    oldest = Notice.objects.order_by("pk").first()  # by its key, so that a round in which nothing is old costs nothing
    if oldest is None or oldest.created_at >= limit:
        return
    old = Notice.objects.filter(pk__lt=oldest.pk + 1000, created_at__lt=limit, routed_at__isnull=False)
    old.exclude(deliveries__state=Delivery.State.PENDING).delete()


def _claim() -> Delivery | None:
    """The next one that is due, leased to this worker. None where nothing is, or another worker is sending.

    What a target is told of one matter keeps its order: while an earlier message is on its way, a later one waits.
    """
    now = clock.now()
    pending = Delivery.objects.filter(state=Delivery.State.PENDING)
    # one that is much longer than any was given before the clock was set back; a little longer, by another worker just now
    free = Q(lease_until=None) | Q(lease_until__lte=now) | Q(lease_until__gt=now + 2 * LEASE)
    if pending.exclude(free).exists():
        return None
    before = pending.filter(
        target=OuterRef("target"), to=OuterRef("to"), notice__thread=OuterRef("notice__thread"), pk__lt=OuterRef("pk")
    ).filter(Q(person=OuterRef("person")) | Q(person=None))
    rows = pending.filter(next_at__lte=now).filter(Q(notice__thread="") | ~Exists(before)).order_by("next_at", "pk")
    for pk in rows.values_list("pk", flat=True)[:5]:
        taken = Delivery.objects.filter(free, pk=pk, state=Delivery.State.PENDING, next_at__lte=now).update(
            fence=F("fence") + 1, attempts=F("attempts") + 1, lease_until=now + LEASE
        )
        if taken:  # by its lease: after a long stop the row may be another worker's by now, with that one's fence
            claimed = Delivery.objects.filter(pk=pk, lease_until=now + LEASE)
            return claimed.select_related("notice", "target", "person__quiet_hours").first()
    return None


def _try(row: Delivery) -> int:
    """One try of a claimed delivery; its end is written only while the claim is ours. 1 where it arrived."""
    try:
        if _put_aside(row):
            return 0
        send(row)
    except Failed as failed:
        _failed(row, failed)
        return 0
    except Exception as error:
        log.error("notice %s was not sent: %s", row.notice_id, where(error))
        _failed(row, Failed(f"{type(error).__name__} before it was sent", "see the worker's log", alone=True))
        return 0
    _write(row, state=Delivery.State.SENT, ended_at=clock.now(), error="")
    return 1


def _put_aside(row: Delivery) -> bool:
    """True where it is not sent any more, or not now."""
    now = clock.now()
    if why := _needless(row):
        _write(row, state=Delivery.State.SKIPPED, ended_at=now, error=why)
        return True
    if row.person and (until := routing.quiet_for(row.person, row.notice, now)):
        _write(row, next_at=until, put_off=True, attempts=row.attempts - 1)
        return True
    return False


def _needless(row: Delivery) -> str:
    """Why it is not sent any more, or nothing."""
    if not row.target.enabled and row.notice.kind != "test":
        return "the target was switched off"
    if row.person and not row.person.is_active:
        return f"{row.person} is switched off"
    place = {"account": row.notice.account, "region": row.notice.region, "pool": row.notice.pool}
    if row.person and access.why_not(row.person, "view", **place):
        return f"{row.person} may not see it any more"
    later = Notice.objects.filter(thread=row.notice.thread, event=Event.RESOLVE, pk__gt=row.notice_id)
    if row.put_off and row.notice.thread and later.exists():
        return "it was over before the quiet hours ended"
    return ""


def _failed(row: Delivery, failed: Failed) -> None:
    now = clock.now()
    words = f"{failed.why}: {failed.advice}."[:1000]
    log.warning("notice %s did not reach %s: %s", row.notice_id, row.target.name, words)
    if failed.for_good or row.attempts >= TRIES:
        _write(row, state=Delivery.State.FAILED, ended_at=now, error=words)
        return
    again = now + max(min(FIRST * 2 ** (row.attempts - 1), LONGEST), timedelta(seconds=failed.after_s))
    if _write(row, next_at=again, error=words) and not failed.alone:
        _hold_back(row, again)


def _hold_back(row: Delivery, until: datetime) -> None:
    """The rest for a target that fails waits as long: it would only cost its time-out again and again."""
    rows = Delivery.objects.filter(target=row.target_id, state=Delivery.State.PENDING, next_at__lt=until)
    rows.filter(Q(lease_until=None) | Q(lease_until__lte=clock.now())).update(next_at=until)


def _write(row: Delivery, **fields: object) -> bool:
    rows = Delivery.objects.filter(pk=row.pk, fence=row.fence, state=Delivery.State.PENDING)
    return bool(rows.update(lease_until=None, **fields))

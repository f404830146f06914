"""Sends what the outbox holds: one line in the worker's log, for whatever collects logs there.

Each message is on the pages as well; other senders register here.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from healthboard import clock
from healthboard.notices.models import Notice

log = logging.getLogger("healthboard.notices")
TRIES = 8


def to_log(notice: Notice) -> None:
    log.warning("notice %s to %s: %s %s", notice.kind, notice.to, notice.subject, notice.link)


SENDERS = (to_log,)


def sweep() -> int:
    """Send each unsent notice once; returns how many. A doubled sweep may repeat one: receivers drop by its key."""
    now = clock.now()
    sent = 0
    for notice in Notice.objects.filter(sent_at=None, next_at__lte=now, attempts__lt=TRIES).order_by("pk")[:200]:
        taken = Notice.objects.filter(pk=notice.pk, sent_at=None, next_at=notice.next_at).update(
            next_at=now + timedelta(seconds=30 * 2**notice.attempts), attempts=notice.attempts + 1
        )
        if not taken:
            continue
        try:
            for sender in SENDERS:
                sender(notice)
        except Exception as error:
            Notice.objects.filter(pk=notice.pk).update(error=str(error)[:1000])
            continue
        Notice.objects.filter(pk=notice.pk).update(sent_at=clock.now(), error="")
        sent += 1
    return sent

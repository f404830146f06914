"""Writing an outgoing message in the transaction of the change that it announces."""

from __future__ import annotations

from django.db.models import F

from healthboard import clock
from healthboard.notices.models import Notice
from healthboard.wake import wake


def announce(*, key: str, kind: str, to: str, subject: str, body: str = "", link: str = "") -> None:
    """One message per `key`; said again, it only counts up (and is not sent again)."""
    now = clock.now()
    _, new = Notice.objects.get_or_create(
        key=key[:200],
        defaults={
            "kind": kind, "to": to[:200], "subject": subject[:255], "body": body, "link": link,
            "created_at": now, "updated_at": now, "next_at": now,
        },
    )  # fmt: skip
    if new:
        wake("workers.notify.sweep")
    else:
        Notice.objects.filter(key=key[:200]).update(count=F("count") + 1, updated_at=now)

"""Taking payloads out of old rows. Their hashes stay, so the chain still verifies; the purge is a row itself."""

from __future__ import annotations

import time
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from healthboard import clock
from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.refusals import Invalid

BATCH = 2_000


def old(before: datetime, keep: Q | None = None) -> QuerySet[AuditRow]:
    """Sealed rows older than `before` that have a payload, without those of `keep`."""
    rows = AuditRow.objects.filter(at__lt=before, seal__isnull=False).exclude(payload=None)
    return rows.exclude(keep) if keep is not None else rows


def purge(
    before: datetime, actor: Actor, *, keep: Q | None = None, quiet: bool = False, end: float = float("inf")
) -> tuple[int, bool]:
    """Set the payload of sealed rows older than `before` to null, but for those of `keep`; returns how many, and whether
    more are left since `end` (time.monotonic) was reached. Each batch is committed with the row that tells of it.
    `quiet`: where there is none, no row does. On PostgreSQL only the owner of the table may (DatabaseError otherwise)."""
    if before > clock.now():
        raise Invalid("The time must not lie in the future.")
    chain.seal()
    rows, count, last = old(before, keep).order_by("pk"), 0, 0
    while True:
        with transaction.atomic():
            part = list(rows.filter(pk__gt=last).values_list("pk", flat=True)[:BATCH])
            if not part and (count or quiet):
                return count, False
            record(chain.PURGED, f"before:{before.isoformat()}", f"payloads of {len(part)} rows purged", actor=actor)
            # once at least: that it may not be done is said even where nothing is that old
            AuditRow.objects.filter(pk__in=part or [0], payload__isnull=False).update(payload=None)
        if not part:
            return 0, False
        count, last = count + len(part), part[-1]
        if time.monotonic() > end:
            return count, rows.filter(pk__gt=last).exists()

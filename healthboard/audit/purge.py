"""Taking payloads out of old rows. Their hashes stay, so the chain still verifies; the purge is a row itself."""

from __future__ import annotations

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


def purge(before: datetime, actor: Actor, *, keep: Q | None = None, quiet: bool = False) -> int:
    """Set the payload of sealed rows older than `before` to null, but for those of `keep`; returns how many. `quiet`:
    where there is none, no row tells of it. On PostgreSQL only the owner of the table may (DatabaseError otherwise)."""
    if before > clock.now():
        raise Invalid("The time must not lie in the future.")
    chain.seal()
    with transaction.atomic():
        rows = old(before, keep)
        count = rows.count()
        if not count and quiet:
            return 0
        record(chain.PURGED, f"before:{before.isoformat()}", f"payloads of {count} rows purged", actor=actor)
        part = [0]
        while part:  # once at least: that it may not be done is said even where nothing is that old
            part = list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH])
            rows.filter(pk__lte=part[-1] if part else 0).update(payload=None)
    return count

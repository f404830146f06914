"""Taking payloads out of old rows. Their hashes stay, so the chain still verifies; the purge is a row itself."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from healthboard import clock
from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.refusals import Invalid


def purge(before: datetime, actor: Actor) -> int:
    """Set the payload of sealed rows older than `before` to null; returns how many. On PostgreSQL only the owner of
    the table may (DatabaseError otherwise)."""
    if before > clock.now():
        raise Invalid("The time must not lie in the future.")
    chain.seal()
    with transaction.atomic():
        rows = AuditRow.objects.filter(at__lt=before, seal__isnull=False).exclude(payload=None)
        count = rows.count()
        record(chain.PURGED, f"before:{before.isoformat()}", f"payloads of {count} rows purged", actor=actor)
        rows.update(payload=None)
    return count

"""The one way to write an audit row: inside the transaction of the change that it tells."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.db import transaction

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.people.actors import Actor


def digest(value: Any) -> str:
    """SHA-256 over canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def record(
    verb: str,
    subject: str,
    summary: str,
    *,
    actor: Actor,
    instance: Any = None,
    case_id: int | None = None,
    repair_id: int | None = None,
    payload: dict[str, Any] | None = None,
) -> AuditRow:
    """Append one row. `instance` is a fleet Instance or None; the payload must be JSON."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError(f"audit row {verb} outside a transaction")
    payload = json.loads(json.dumps(payload or {}, default=str))
    return AuditRow.objects.create(
        at=clock.now(),
        user=actor.user,
        actor=actor.name[:150],
        via=actor.via,
        verb=verb,
        subject=subject,
        account=instance.account.account_id if instance is not None else "",
        region=instance.region if instance is not None else "",
        instance=instance.instance_id if instance is not None else "",
        case_id=case_id,
        repair_id=repair_id,
        summary=summary,
        payload=payload,
        payload_hash=digest(payload),
        request_id=actor.request_id,
    )

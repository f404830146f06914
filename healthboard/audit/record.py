"""The one way to write an audit row: inside the transaction of the change that it tells."""

from __future__ import annotations

import hashlib
import json
import math
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
    account: Any = None,
    region: str = "",
) -> AuditRow:
    """Append one row. `instance` is a fleet Instance or None; `account` (a fleet Account) and `region` are of what is
    wider than one: only who sees them as a whole reads the row. The payload must be JSON."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError(f"audit row {verb} outside a transaction")
    payload = json.loads(json.dumps(_kept(payload or {}), default=str))
    if instance is not None:
        account, region = instance.account, instance.region
    return AuditRow.objects.create(
        at=clock.now(),
        user=actor.user,
        actor=_kept(actor.name[:150]),
        via=actor.via,
        verb=verb,
        subject=subject,
        account=account.account_id if account is not None else "",
        region=region,
        instance=instance.instance_id if instance is not None else "",
        case_id=case_id,
        repair_id=repair_id,
        summary=_kept(summary),
        payload=payload,
        payload_hash=digest(payload),
        request_id=actor.request_id,
    )


def _kept(value: Any) -> Any:
    """The value as every database gives it back: what nodes and AWS say may hold what PostgreSQL refuses or rewrites,
    and the hash must be that of what is read later."""
    match value:
        case str():
            return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float():
            if not math.isfinite(value):
                return str(value)
            return int(value) if value.is_integer() and (abs(value) >= 1e15 or value == 0) else value
        case dict():
            return {_kept(str(key)): _kept(part) for key, part in value.items()}
        case list() | tuple():
            return [_kept(part) for part in value]
        case _:
            return value

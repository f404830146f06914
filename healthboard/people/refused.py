"""What was refused of nodes, counted by hour, reason and (where a credential proves it) instance.

Counts are gathered in this process and written at most once a second, so that a flood of forged reports costs no write
each. An audit row tells of the first of a kind and instance in an hour, not of each.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Max, Sum

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people.actors import Actor
from healthboard.people.models import NodeRefusal

EVERY_S = 1.0
#: so many different ones are gathered at most before they are written
MOST = 500
KEPT = timedelta(days=90)
#: reasons that mean somebody spoke for another machine, came a second time or made his up: told in the audit log
TOLD = frozenset(
    {"another instance", "enrolled already", "not this machine", "used nonce", "proof refused", "too much history"}
)
_NODE = Actor(name="a node", via="system")

_lock = threading.Lock()
_waiting: Counter[tuple[datetime, str, str]] = Counter()
_written_at = 0.0


def count(reason: str, instance: str = "") -> None:
    """Count one refusal; written with those of the same second."""
    now = clock.now()
    with _lock:
        _waiting[now.replace(minute=0, second=0, microsecond=0), reason[:60], instance[:32]] += 1
        full = len(_waiting) >= MOST
    flush(force=full)


def flush(*, force: bool = False) -> None:
    """Write what is waiting, if the last time was long enough ago. Does nothing in a transaction that may roll back."""
    global _written_at
    with _lock:
        if not _waiting or not (force or time.monotonic() - _written_at >= EVERY_S):
            return
        rows, _written_at = dict(_waiting), time.monotonic()
        _waiting.clear()
    with transaction.atomic():
        for (hour, reason, instance), number in sorted(rows.items()):
            _add(hour, reason, instance, number)


def _add(hour: datetime, reason: str, instance: str, number: int) -> None:
    now = clock.now()
    row, first = NodeRefusal.objects.get_or_create(
        hour=hour, reason=reason, instance=instance, defaults={"count": number, "last_at": now}
    )
    if not first:
        NodeRefusal.objects.filter(pk=row.pk).update(count=F("count") + number, last_at=now)
        return
    NodeRefusal.objects.filter(hour__lt=now - KEPT).delete()
    if reason in TOLD:
        whom = instance or "an unproven sender"
        record("node.refused", f"node:{instance}", f"{whom} was refused: {reason}", actor=_NODE)


def lately(hours: float = 24) -> list[dict[str, object]]:
    """Sums by reason and instance of the last hours, most first: {"reason", "instance", "count", "last_at"}."""
    rows = NodeRefusal.objects.filter(hour__gt=clock.now() - timedelta(hours=hours + 1))
    return list(
        rows.values("reason", "instance").annotate(count=Sum("count"), last_at=Max("last_at")).order_by("-count")
    )

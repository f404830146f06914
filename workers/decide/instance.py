"""Evidence to verdict to case, for one instance at a time."""

from __future__ import annotations

import logging

from django.db import transaction
from django.db.models import F, Q

from healthboard import clock
from healthboard.cases import readings
from healthboard.fleet.models import Instance
from healthboard.policies.reading import reread

log = logging.getLogger(__name__)
LIMIT = 500


def read(instance_id: int, *, due: Q | None = None) -> None:
    """Read it and write the verdict; the case follows in its own transaction. `due`: only where that still holds once it
    is locked, since another worker may have read it meanwhile."""
    rows = Instance.objects.select_related("account", "cluster", "pool__cluster").filter(due or Q())
    with transaction.atomic():
        # one reading of an instance at a time: two workers must not open or escalate from different evidence
        instance = rows.select_for_update(of=("self",), no_key=True).filter(pk=instance_id).first()
        if instance is None:
            return
        started = clock.now()
        seen = reread(instance)
        a = seen.assessment
        fields = {
            "evaluated_at": started, "evaluate_next_at": a.next_at, "verdict_why": a.why[:2000],
            "verdict_code": a.primary.code if a.primary else "",
        }  # fmt: skip
        if instance.verdict != str(a.verdict) or instance.verdict_since is None:
            fields |= {"verdict": str(a.verdict), "verdict_since": started}
        Instance.objects.filter(pk=instance.pk).update(**fields)
        readings.apply_reading(instance, seen)


def read_woken(instance_id: int) -> None:
    """Read it if it is due: of many wake-ups for one change the first reads, the others cost one query each."""
    if Instance.objects.filter(_due(), pk=instance_id).exists():
        read(instance_id, due=_due())


def _due() -> Q:
    return Q(evaluated_at=None) | Q(evidence_at__gte=F("evaluated_at")) | Q(evaluate_next_at__lte=clock.now())


def read_due() -> int:
    """Instances whose evidence is newer than its reading, or whose time has come. Returns how many were read."""
    rows = Instance.objects.filter(_due()).filter(
        Q(gone_at=None) | Q(cases__closed_at=None, cases__isnull=False) | Q(evaluated_at=None)
    )
    ids = list(rows.order_by("evaluated_at").values_list("pk", flat=True).distinct()[:LIMIT])
    for pk in ids:
        try:
            read(pk, due=_due())
        except Exception:  # one instance must not stop the others; it is found again by the next sweep
            log.exception("reading of instance row %s failed", pk)
    return len(ids)

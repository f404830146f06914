"""Whether an announced end of an instance comes before a repair of it would be done."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard.diagnosis.rules.announced import ENDS, until
from healthboard.fleet.models import HealthEvent, Instance

#: no announcement is awaited for longer
LONGEST = timedelta(days=1)


def why_ending(instance: Instance, now: datetime) -> str:
    """What is announced, and until when nothing is begun; empty where nothing is, or where its time has passed."""
    told = HealthEvent.objects.filter(instance=instance, code__in=ENDS, backlog=False, at__lte=now)
    for event in told.filter(at__gt=now - LONGEST).order_by("-at")[:20]:
        if now < (end := until(event)):
            return f"it goes away by itself ({event.text or event.code}): nothing is begun until {end:%H:%M:%S} UTC"
    return ""

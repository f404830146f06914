"""Whether an announced end of an instance comes before a repair of it would be done."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard import clock
from healthboard.diagnosis.parsed import parse_time
from healthboard.fleet.models import HealthEvent, Instance

#: announcement -> (what it says, AWS's time until it has happened, at the latest)
ANNOUNCED = {
    "EC2_SPOT_INTERRUPTION": ("Spot takes it back", timedelta(minutes=10)),
    "CAPACITY_BLOCK_ENDING": ("its Capacity Block ends", timedelta(minutes=45)),
}


def why_ending(instance: Instance, now: datetime) -> str:
    """What is announced, and until when nothing is begun; empty where nothing is, or where the time has passed."""
    longest = max(clock.scaled(span) for _, span in ANNOUNCED.values())
    told = HealthEvent.objects.filter(instance=instance, code__in=ANNOUNCED, last_at__gt=now - longest)
    for event in told.order_by("-last_at"):
        words, span = ANNOUNCED[event.code]
        until = event.last_at + clock.scaled(span)
        until = min(parse_time(event.attrs.get("ends")) or until, until)
        if now < until:
            return f"{words}: a repair would not be done before. Looked at again at {until:%H:%M:%S} UTC"
    return ""

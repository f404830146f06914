"""Zones in trouble: where launches fail, or where much of what runs there is impaired or announced to end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import Q

from healthboard import clock
from healthboard.fleet.models import Account, HealthEvent, Instance, Interval
from healthboard.repairs.models import Breaker, Launch

#: how long a failed launch speaks against its zone, at speed 1
RECENT = timedelta(minutes=30)
LEAST = timedelta(minutes=2)
#: so many instances of a zone, and this share of them, are many
MANY, SHARE = 3, 0.25
#: readings of EC2 that speak against a zone when many of its instances show them
IMPAIRED = ("EC2_SYSTEM", "EC2_ATTACHED_EBS")


def trouble(account: Account, region: str, zone: str, instance_type: str) -> str:
    """Why nothing of this type should be launched in this zone now, in words; empty where nothing is known against it."""
    if not zone:
        return ""
    return _breaker(account, region, zone) or _launches(account, region, zone, instance_type) or _many(
        account, region, zone
    )  # fmt: skip


def short_since(account: Account, region: str, zone: str, instance_type: str) -> datetime | None:
    """When capacity for this type was last refused in this zone, if that is recent and none served there since."""
    last = _recent(account, region, zone, instance_type).order_by("-at", "-pk").first()
    return last.at if last is not None and last.outcome == Launch.Outcome.NO_CAPACITY else None


def _recent(account: Account, region: str, zone: str, instance_type: str):
    since = clock.now() - max(clock.scaled(RECENT), LEAST)
    return Launch.objects.filter(
        repair__instance__account=account, repair__instance__region=region, zone=zone, instance_type=instance_type,
        at__gt=since,
    )  # fmt: skip


def _breaker(account: Account, region: str, zone: str) -> str:
    row = Breaker.objects.filter(
        account=account, region=region, scope_kind="zone", scope=zone, released_at=None
    ).first()
    return f"its breaker is open: {row.why}" if row else ""


def _launches(account: Account, region: str, zone: str, instance_type: str) -> str:
    if at := short_since(account, region, zone, instance_type):
        return f"no capacity for {instance_type} at {at:%H:%M:%S}"
    recent = _recent(account, region, zone, instance_type)
    last = recent.filter(outcome=Launch.Outcome.SERVED).order_by("-at").first()
    since = last.at if last else datetime.fromtimestamp(0, UTC)
    failed = recent.filter(outcome=Launch.Outcome.FAILED, at__gt=since)
    count = failed.values("repair").distinct().count()
    return f"{count} launches of {instance_type} failed there lately" if count > 1 else ""


def _many(account: Account, region: str, zone: str) -> str:
    live = Instance.objects.filter(account=account, region=region, zone=zone, gone_at=None, state="running")
    size = live.count()
    bad = Q(name__in=IMPAIRED, value="IMPAIRED") | Q(name="EC2_SCHEDULED_EVENT") & ~Q(value=None)
    told = set(Interval.objects.filter(bad, instance__in=live, until=None).values_list("instance", flat=True))
    since = clock.now() - max(clock.scaled(RECENT), LEAST)
    events = HealthEvent.objects.filter(
        instance__in=live, code="AWS_HEALTH_EVENT", attrs__topic="issue", backlog=False, last_at__gt=since
    )
    told |= set(events.values_list("instance", flat=True))
    if len(told) < MANY or len(told) < SHARE * size:
        return ""
    return f"{len(told)} of its {size} instances are impaired or have health events"

"""How AWS answers, minute by minute: the one writer of `AwsMinute`, and what the last minutes come to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from healthboard import clock
from healthboard.fleet.models import Account, AwsMinute

KEPT = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Sum:
    """`minutes`: how many minutes had a failure."""

    good: int
    bad: int
    minutes: int
    error: str  # the last one


def note(account: Account, region: str, *, good: int = 0, bad: int = 0, error: str = "") -> None:
    """Count rounds or changing calls of one place that AWS answered, or failed to answer."""
    minute = clock.now().replace(second=0, microsecond=0)
    row = AwsMinute.objects.filter(account=account, region=region, minute=minute)
    change = {"good": F("good") + good, "bad": F("bad") + bad, **({"error": error[:255]} if error else {})}
    if not row.update(**change):
        made = AwsMinute(account=account, region=region, minute=minute)
        AwsMinute.objects.bulk_create([made], ignore_conflicts=True)
        row.update(**change)
        AwsMinute.objects.filter(account=account, region=region, minute__lt=minute - KEPT).delete()


def since(account: Account, region: str, at: datetime) -> Sum:
    """The sum over the minutes that began at `at` or later."""
    rows = list(AwsMinute.objects.filter(account=account, region=region, minute__gte=at).order_by("minute"))
    failed = [row for row in rows if row.bad]
    return Sum(sum(r.good for r in rows), sum(r.bad for r in rows), len(failed), failed[-1].error if failed else "")

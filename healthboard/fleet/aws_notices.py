"""Notices of AWS Health that name no instance: of the account, the region or a zone. The one writer of their rows.

They are shown to people and never are evidence against a machine: nobody has asked AWS itself whether they are true.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Q, QuerySet

from healthboard import clock
from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.signals import Event
from healthboard.fleet.heads import text
from healthboard.fleet.models import Account, AwsNotice

#: one that AWS never closes is shown no longer than this after it was last told
SHOWN = timedelta(days=14)
KEPT = timedelta(days=90)
#: of one place: whoever may write to its queue cannot fill the database
MOST = 500


def keep(account: Account, region: str, events: Iterable[Event]) -> None:
    """Write what the events say, in whatever order they come. Call inside a transaction that holds the account's row."""
    told = sorted(events, key=lambda event: event.at)
    if not told:
        return
    rows = AwsNotice.objects.filter(account=account, region=region)
    known = {row.arn: row for row in rows.filter(arn__in=[_name(event) for event in told])}
    for event in told:
        row = known.get(_name(event))
        if row is None:
            row = known[_name(event)] = AwsNotice(
                account=account, region=region, arn=_name(event), topic="notice", begun_at=event.at, told_at=event.at
            )
        elif event.at < row.told_at or (event.at == row.told_at and row.closed_at):
            continue  # AWS has said something newer since
        _say(row, event)
        row.save()
    rows.filter(told_at__lt=clock.now() - KEPT).delete()
    surplus = rows.order_by("-told_at", "-pk").values_list("pk", flat=True)[MOST:]
    AwsNotice.objects.filter(pk__in=list(surplus)).delete()


def standing(rows: QuerySet[AwsNotice]) -> QuerySet[AwsNotice]:
    """Those of `rows` that AWS has not closed and that have not run out, the newest first."""
    now = clock.now()
    rows = rows.filter(Q(ends_at=None) | Q(ends_at__gt=now), closed_at=None, told_at__gt=now - SHOWN)
    return rows.order_by("-told_at", "-pk")


def _name(event: Event) -> str:
    return text(event.attrs.get("arn") or event.attrs.get("id"), 300)


def _say(row: AwsNotice, event: Event) -> None:
    row.told_at = event.at
    if event.attrs.get("topic") == "closed":
        row.closed_at = event.at
        row.type = row.type or text(event.attrs.get("type"), 120)
        return
    row.closed_at = None
    row.topic, row.type = text(event.attrs.get("topic"), 20), text(event.attrs.get("type"), 120)
    row.service, row.zone = text(event.attrs.get("service"), 40), text(event.attrs.get("zone"), 32)
    row.text = text(event.text, 300)
    row.begun_at = parse_time(event.attrs.get("start")) or row.begun_at
    row.ends_at = parse_time(event.attrs.get("ends"))

"""Stores health events: the same event within a burst counts up in one row, later it gets a new one."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F, Q

from healthboard import clock
from healthboard.diagnosis.signals import Event
from healthboard.fleet import heads
from healthboard.fleet.models import HealthEvent, Instance

BURST = timedelta(minutes=3)
#: an event that is older than this when it arrives is kept, and nothing acts on it
BACKLOG_AFTER = timedelta(minutes=5)
#: channels that tell what is so now, whenever it began
DESCRIBED = ("ec2", "ecs")
#: rows of one code, source and GPU within a burst; what differs beyond them is counted into the newest
DISTINCT = 16
MORE = 2_000_000_000

_Key = tuple[int, str, str, str, str, bool]


class Stored(NamedTuple):
    """By instance pk: those that have news which may be acted on, and how many rows were made."""

    news: set[int]
    made: Counter[int]


def store(channel: str, told: list[tuple[Instance, list[Event]]]) -> Stored:
    """Write what is new."""
    if not told:
        return Stored(set(), Counter())
    received = clock.now()
    known_ids = _known_ids(told)
    recent = _recent(told)
    touched: set[int] = set()
    updated: dict[int, HealthEvent] = {}
    created: list[HealthEvent] = []
    for instance, events in told:
        for event in events:
            identity = _identity(event)
            if identity and (instance.pk, identity) in known_ids:
                continue
            row = _row(channel, instance, event, received)
            burst = recent.setdefault(_key(row), [])
            mate = None if identity else _mate(burst, row)  # a named event keeps its row, so that it is known again
            if mate is None:
                burst.append(row)
                created.append(row)
            elif _same_moment(event, mate):
                continue
            else:
                mate.count = min(mate.count + row.count, MORE)
                mate.at = min(mate.at, row.at)
                mate.last_at = max(mate.last_at, row.last_at)
                if mate.pk:
                    updated[mate.pk] = mate
            if identity:
                known_ids.add((instance.pk, identity))
            if not row.backlog:
                touched.add(instance.pk)
    HealthEvent.objects.bulk_create(created, batch_size=500)
    HealthEvent.objects.bulk_update(updated.values(), ["count", "at", "last_at"], batch_size=500)
    return Stored(touched, Counter(row.instance_id for row in created))


def set_aside(since: datetime, now: datetime) -> int:
    """Nobody looked from `since` until now: what arrived then, was not read and is old by now becomes backlog."""
    unread = Q(instance__evaluated_at=None) | Q(instance__evaluated_at__lt=F("received_at"))
    rows = HealthEvent.objects.filter(unread, received_at__gt=since, last_at__lt=now - BACKLOG_AFTER, backlog=False)
    return HealthEvent.objects.filter(pk__in=rows.exclude(source__in=DESCRIBED).values("pk")).update(backlog=True)


def _row(channel: str, instance: Instance, event: Event, received: datetime) -> HealthEvent:
    last = min(event.last_at or event.at, received)
    return HealthEvent(
        instance=instance,
        source=heads.text(event.source, 16),
        code=heads.text(event.code, 64),
        gpu=heads.text(event.gpu, 96),
        at=min(event.at, last),
        last_at=last,
        received_at=received,
        count=max(1, min(event.count, MORE)),
        boot_id=heads.text(event.boot_id, 64),
        seq=event.seq,
        text=heads.text(event.text, 4000),
        attrs=heads.clean(event.attrs),
        backlog=channel not in DESCRIBED and received - last > BACKLOG_AFTER,
    )


def _identity(event: Event) -> str:
    """The sender's own name of the event, or empty."""
    value = event.attrs.get("id") if event.attrs else None
    return heads.text(value, 200) if value else ""


def _known_ids(told: list[tuple[Instance, list[Event]]]) -> set[tuple[int, str]]:
    wanted: dict[int, set[str]] = {}
    for instance, events in told:
        ids = {identity for event in events if (identity := _identity(event))}
        if ids:
            wanted[instance.pk] = ids
    if not wanted:
        return set()
    every = sorted(set().union(*wanted.values()))
    rows = HealthEvent.objects.filter(instance__in=list(wanted), attrs__id__in=every)
    return {(pk, str(value)) for pk, value in rows.values_list("instance_id", "attrs__id")}


def _key(row: HealthEvent) -> _Key:
    return (row.instance_id, row.source, row.code, row.gpu, row.boot_id, row.backlog)


def _recent(told: list[tuple[Instance, list[Event]]]) -> dict[_Key, list[HealthEvent]]:
    """Rows that a repeat may still count into, by key, oldest first."""
    first = min(event.at for _, events in told for event in events)
    rows = HealthEvent.objects.filter(
        instance__in=[instance.pk for instance, _ in told],
        last_at__gte=min(first, clock.now()) - BURST,
        code__in={heads.text(event.code, 64) for _, events in told for event in events},
    )
    found: dict[_Key, list[HealthEvent]] = {}
    for row in rows.order_by("pk"):
        found.setdefault(_key(row), []).append(row)
    return found


def _mate(burst: list[HealthEvent], row: HealthEvent) -> HealthEvent | None:
    """The row of the same burst that says the same; the newest one where a burst has too many kinds."""
    near = [x for x in burst if x.at - BURST <= row.last_at and row.at - BURST <= x.last_at]
    same = _meaning(row.attrs)
    for mate in reversed(near):
        if _meaning(mate.attrs) == same:
            return mate
    return near[-1] if len(near) >= DISTINCT else None


def _meaning(attrs: dict[str, Any]) -> str:
    return heads.canonical({k: v for k, v in heads.steady(attrs).items() if k != "id"})


def _same_moment(event: Event, mate: HealthEvent) -> bool:
    """Told again, without a number of its own: the same moment is the same event."""
    return event.seq is None and event.at in (mate.at, mate.last_at) and mate.pk is not None

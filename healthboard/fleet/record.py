"""Writes what a channel told about instances, as intervals and events. The one writer of these and of heads, with the cheap
way of a node's report beside it, `unchanged`.

Cost follows change: a round in which nothing changed is one UPDATE for all its instances. An open interval holds until
its head's `last_at`, and was seen `head.count - first_count + 1` times. A silence of more than three rounds ends all
intervals at the last word before it and leaves an interval named GAP.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Least, Substr

from healthboard import clock, wake
from healthboard.diagnosis.signals import Event, Reading
from healthboard.fleet import bursts, heads
from healthboard.fleet.models import Head, HealthEvent, Instance, Interval

log = logging.getLogger(__name__)

#: a round that changes more instances than this leaves their reading to the sweeper instead of waking one by one
WAKE_LIMIT = 200
BATCH = 500


@dataclass(frozen=True, slots=True)
class Item:
    """What one round told about one instance. `seq`: position within `boot_id`, for a channel that numbers its rounds.

    `extra` is anything JSON-like that counts as a change of the round without being a reading of its own.
    """

    instance: Instance
    readings: Sequence[Reading] = ()
    events: Sequence[Event] = ()
    boot_id: str = ""
    seq: int | None = None
    extra: Any = None


@dataclass(slots=True)
class Outcome:
    """`changed`: evidence is new or was confirmed for the first time. `duplicate`: told before, and without effect.
    `rows`: how many intervals and events it made.
    """

    changed: bool = False
    duplicate: bool = False
    rebooted: bool = False
    failed: bool = False
    kernel_seq: int = -1
    rows: int = 0


@dataclass(slots=True)
class _Round:
    item: Item
    head: Head
    at: datetime
    digest: str
    outcome: Outcome = field(default_factory=Outcome)
    gap: bool = False
    same: bool = False
    events: list[Event] = field(default_factory=list)


def record(
    instance: Instance,
    channel: str,
    at: datetime,
    readings: Sequence[Reading],
    events: Sequence[Event],
    *,
    boot_id: str = "",
    seq: int | None = None,
) -> bool:
    """One instance's round; True if its evidence changed."""
    item = Item(instance, readings, events, boot_id, seq)
    return record_many(channel, at, [item])[instance.pk].changed


def record_many(channel: str, at: datetime, items: Iterable[Item]) -> dict[int, Outcome]:
    """One round of a channel over many instances: instance pk -> Outcome. `at`: when it was told, aware UTC.

    An item that cannot be read is logged and marked failed; the others are written all the same.
    """
    by_pk = {item.instance.pk: item for item in items}
    outcomes: dict[int, Outcome] = {}
    if not by_pk:
        return outcomes
    with transaction.atomic(savepoint=False):
        rounds = []
        for pk, head in _lock_heads(channel, at, by_pk).items():
            try:
                step = _compare(channel, at, by_pk[pk], head)
            except Exception:
                log.exception("%s: what %s told cannot be read", by_pk[pk].instance, channel)
                outcomes[pk] = Outcome(failed=True)
                continue
            outcomes[pk] = step.outcome
            if not step.outcome.duplicate:
                rounds.append(step)
        _write_intervals(channel, [r for r in rounds if not r.same])
        stored = bursts.store(channel, [(r.item.instance, r.events) for r in rounds if r.events])
        for r in rounds:
            r.outcome.changed |= r.item.instance.pk in stored.news
            r.outcome.rows += stored.made[r.item.instance.pk]
        _move_heads(rounds, at)
        touch([pk for pk, outcome in outcomes.items() if outcome.changed])
    return outcomes


def record_events(channel: str, told: Iterable[tuple[Instance, Sequence[Event]]]) -> set[int]:
    """Events that came outside a round, without readings; gives the pks of the instances that have news.

    No head moves: such a channel tells when something happens, and its silence is no gap.
    """
    with transaction.atomic(savepoint=False):
        news = bursts.store(channel, [(instance, list(events)) for instance, events in told if events]).news
        touch(sorted(news))
    return news


def touch(pks: Sequence[int]) -> None:
    """The evidence of these instances changed: note it and wake whoever reads it. Call inside the transaction."""
    now = clock.now()
    for part in _parts(list(pks)):
        Instance.objects.filter(pk__in=part).update(evidence_at=now)
    for pk in pks[:WAKE_LIMIT]:
        wake.wake("workers.decide.evaluate", pk)


def look_again(pk: int) -> None:
    """Have an instance read anew although its evidence did not change: what is done about it did.

    Once the caller's transaction has committed: a reading locks the instance before its case.
    """
    transaction.on_commit(lambda: Instance.objects.filter(pk=pk).update(evaluate_next_at=clock.now()))
    wake.wake("workers.decide.evaluate", pk)


def pull_in(now: datetime) -> int:
    """What was told at a time that is to come was told by now at the latest: the clock was set back since.

    Otherwise nothing newer would count until that time had come. Gives how many rows were moved.
    """
    # EC2's facts are not told by a head alone: a round leaves alone what a later one seems to have seen
    seen = Instance.objects.filter(seen_at__gt=now).update(seen_at=now)
    if not Head.objects.filter(last_at__gt=now).exists():
        return seen  # every source that speaks moves its head: the long tables need no search
    times = Least(F("at"), now), Least(F("last_at"), now)
    moved = seen + Head.objects.filter(last_at__gt=now).update(last_at=now)
    moved += Interval.objects.filter(since__gt=now).update(since=now)
    moved += Interval.objects.filter(until__gt=now).update(until=now)
    moved += HealthEvent.objects.filter(received_at__gt=now).update(received_at=now, at=times[0], last_at=times[1])
    Instance.objects.filter(evaluated_at__gt=now).update(evaluated_at=now, evidence_at=now)
    return moved


def _lock_heads(channel: str, at: datetime, by_pk: dict[int, Item]) -> dict[int, Head]:
    """The heads by instance, locked in one order; new ones have told 0 rounds."""

    def locked(pks: list[int]) -> dict[int, Head]:
        found = {}
        for part in _parts(pks):
            rows = Head.objects.select_for_update().filter(channel=channel, instance__in=part)
            found.update({head.instance_id: head for head in rows.order_by("pk")})
        return found

    heads_by_pk = locked(list(by_pk))
    missing = [pk for pk in by_pk if pk not in heads_by_pk]
    if missing:
        Head.objects.bulk_create(
            [Head(instance_id=pk, channel=channel, first_at=at, last_at=at, count=0) for pk in missing],
            batch_size=BATCH,
            ignore_conflicts=True,
        )
        heads_by_pk.update(locked(missing))
    return heads_by_pk


def _compare(channel: str, at: datetime, item: Item, head: Head) -> _Round:
    """Is it new, a repeat, a gap, another boot; changes the head in memory only."""
    outcome = Outcome()
    numbered = item.seq is not None
    boot = heads.text(item.boot_id, 64)
    if numbered:
        at = max(at, head.last_at)  # its own order is the truth, whatever the clocks say
        if boot == head.boot_id:
            outcome.duplicate = item.seq <= head.seq
        else:
            outcome.rebooted = bool(head.count)
            outcome.duplicate = outcome.rebooted and _was_booted(head, boot)
    elif head.count and at <= head.last_at:
        outcome.duplicate = True  # an older answer that arrives late
    else:  # a channel without numbers of its own: the boot is the one that the node told
        outcome.rebooted = bool(head.count and boot and head.boot_id and boot != head.boot_id)
    readings = heads.digest_of(item.readings, item.extra)
    step = _Round(item, head, at, readings, outcome)
    if outcome.duplicate:
        return step
    step.gap = bool(head.count) and at - head.last_at > heads.gap_after(channel)
    step.same = head.digest.rstrip(heads.FRESH) == readings and not step.gap and not outcome.rebooted
    outcome.changed = not step.same or head.digest.endswith(heads.FRESH)
    before = -1 if outcome.rebooted else head.kernel_seq
    step.events = [e for e in item.events if not _told_before(e, boot, before)]
    head.kernel_seq = max([before, *(e.seq for e in step.events if e.seq is not None and e.source == "kernel")])
    outcome.kernel_seq = head.kernel_seq
    head.boot_id = boot or head.boot_id
    head.seq = item.seq if numbered else head.seq
    return step


def _told_before(event: Event, boot: str, kernel_seq: int) -> bool:
    return (
        event.source == "kernel"
        and event.seq is not None
        and (event.boot_id or boot) == boot
        and event.seq <= kernel_seq
    )


def _was_booted(head: Head, boot: str) -> bool:
    """A boot that this instance has left behind: its reports are old ones that come again."""
    return Interval.objects.filter(head=head, name="BOOT_ID", value=boot).exists()


def _write_intervals(channel: str, rounds: list[_Round]) -> None:
    if not rounds:
        return
    opened: dict[int, list[Interval]] = {r.head.pk: [] for r in rounds}
    for part in _parts(list(opened)):
        for row in Interval.objects.filter(head__in=part, until=None):
            opened[row.head_id].append(row)
    closed: list[Interval] = []
    made: list[Interval] = []
    for r in rounds:
        told = {(heads.text(x.source, 16), x.name[:40], heads.text(x.gpu, 96)): x for x in reversed(r.item.readings)}
        for row in opened[r.head.pk]:
            key = (row.source, row.name, row.gpu)
            same = key in told and _same(row, told[key])
            if same and not r.gap and not r.outcome.rebooted:
                del told[key]
                continue
            row.until = r.head.last_at
            row.observations = max(r.head.count - row.first_count + 1, 1)
            closed.append(row)
        if r.gap:
            made += [_gap(source, r) for source in sorted({row.source for row in opened[r.head.pk]} or {channel})]
        made += [_interval(r, *key, reading) for key, reading in told.items()]
        r.outcome.rows += len(told)
    alike: dict[tuple[Any, ...], list[int]] = {}  # most of a round end at the same time
    for row in closed:
        alike.setdefault((row.until, row.observations), []).append(row.pk)
    for (until, observations), rows in alike.items():
        for part in _parts(rows):
            Interval.objects.filter(pk__in=part).update(until=until, observations=observations)
    Interval.objects.bulk_create(made, batch_size=BATCH)


def _same(row: Interval, reading: Reading) -> bool:
    return heads.canonical([row.value, heads.steady(row.attrs)]) == heads.canonical(
        [reading.value, heads.steady(reading.attrs)]
    )


def _interval(r: _Round, source: str, name: str, gpu: str, reading: Reading) -> Interval:
    return Interval(
        head=r.head,
        instance_id=r.item.instance.pk,
        source=source,
        name=name,
        gpu=gpu,
        value=heads.clean(reading.value),
        attrs=heads.clean(reading.attrs),
        since=r.at,
        first_count=r.head.count + 1,
    )


def _gap(source: str, r: _Round) -> Interval:
    """The silence before this round, of one of the sources that the channel carries."""
    seconds = round((r.at - r.head.last_at).total_seconds())
    return Interval(
        head=r.head,
        instance_id=r.item.instance.pk,
        source=source,
        name="GAP",
        value=f"nothing was told for {seconds} s",
        since=r.head.last_at,
        until=r.at - timedelta(milliseconds=1),  # what is told now is newer than the gap
        first_count=r.head.count,
        observations=0,
    )


def _move_heads(rounds: list[_Round], at: datetime) -> None:
    """One UPDATE for all that only confirmed; the rest in a batch."""
    plain = [r.head.pk for r in rounds if r.same and r.item.seq is None and not r.events]
    for part in _parts(plain):
        digest = Substr("digest", 1, heads.DIGEST)  # confirmed: no longer fresh
        Head.objects.filter(pk__in=part).update(last_at=at, count=F("count") + 1, digest=digest)
    moved = []
    for r in rounds:
        if not (r.same and r.item.seq is None and not r.events):
            r.head.last_at = r.at
            r.head.count += 1
            r.head.digest = r.digest + (heads.FRESH if not r.same else "")
            moved.append(r.head)
    columns = ["last_at", "count", "digest", "boot_id", "seq", "kernel_seq"]
    if len(moved) == 1:
        moved[0].save(update_fields=columns)
    else:  # far cheaper than an UPDATE with a CASE for each row
        Head.objects.bulk_create(
            moved, batch_size=BATCH, update_conflicts=True, unique_fields=["id"], update_fields=columns
        )


def _parts(pks: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(pks), 5000):
        yield pks[start : start + 5000]

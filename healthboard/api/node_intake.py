"""Stores a report that was accepted. An unchanged one costs two queries: its token, and what it confirms."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from healthboard import clock
from healthboard.api.node_schema import Report
from healthboard.diagnosis import node_report
from healthboard.diagnosis.parsed import parse_time
from healthboard.fleet import gpus, heads, record, recorder, unchanged
from healthboard.fleet.models import Head, HealthEvent, Instance, NodeRequest, Source

#: a clock may run ahead by so much
AHEAD = timedelta(minutes=2)
#: what is dated no further ahead than this is wanted later, and lost to nobody
LATER = timedelta(hours=1)
#: a report that was under way for longer is dated by its sender: it waited in the node's spool
PROMPT = timedelta(seconds=60)
#: an answer that asked for a verb may have been lost: the verb is asked for again, the node runs it once
ASK_AGAIN = timedelta(seconds=60)
LEAST_INTERVAL_S = 5.0
MEASURE_EVERY_S = 15.0
#: what else could have changed of the GPUs: whose they are, how many the instance should have
WHOLE_EVERY_S = 300.0
#: reports of one node at once, and a second after that: an hour that waited in its spool is taken within minutes
BURST_SIZE, PER_SECOND = 120.0, 1.0
#: flight recordings of one node that are kept of a day: each may have as many bytes as a report
RECORDINGS = 48
#: rows of history that one node may fill at once, and a second after that: a machine whose every reading is told anew at
#: its boot takes some hundred, one that flaps a few with each report
ROWS_AT_ONCE, ROWS_PER_SECOND = 20_000.0, 1.0


class TooFarAhead(ValueError):
    """The report is dated in the future; nothing is stored. `wait`: seconds until it would be taken; None where that is
    too far away to wait for."""

    def __init__(self, text: str, wait: int | None) -> None:
        super().__init__(text)
        self.wait = wait


class Limiter:
    """A bucket per key in this process's memory: `size` at once, `rate` a second after that. What is known only
    afterwards is `spent`, and may leave a debt."""

    def __init__(self, size: float, rate: float, tick: Callable[[], float] = time.monotonic) -> None:
        self.size, self.rate, self.tick = size, rate, tick
        self.lock = threading.Lock()
        self.buckets: dict[int, tuple[float, float]] = {}

    def wait(self, key: int) -> int:
        """0 if there is room, else seconds until there is."""
        now = self.tick()
        with self.lock:
            left = self._left(key, now)
            if left < 1:
                self.buckets[key] = (left, now)
                return self._seconds(left)
            self._keep(key, left - 1, now)
        return 0

    def empty(self, key: int) -> int:
        """As `wait`, taking nothing."""
        left = self._left(key, self.tick())
        return self._seconds(left) if left < 1 else 0

    def spent(self, key: int, units: int) -> None:
        now = self.tick()
        with self.lock:
            self._keep(key, self._left(key, now) - units, now)

    def _left(self, key: int, now: float) -> float:
        left, at = self.buckets.get(key, (self.size, now))
        return min(self.size, left + (now - at) * self.rate)

    def _seconds(self, left: float) -> int:
        return max(1, round((1 - left) / self.rate))

    def _keep(self, key: int, left: float, now: float) -> None:
        self.buckets[key] = (left, now)
        if len(self.buckets) > 50_000:
            self.buckets.clear()


class Every:
    """True for a key at most once in `seconds`, in this process's memory."""

    def __init__(self, seconds: float, tick: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.tick = seconds, tick
        self.last: dict[Any, float] = {}

    def due(self, key: Any) -> bool:
        now = self.tick()
        if now - self.last.get(key, -1e18) < self.seconds:
            return False
        if len(self.last) > 50_000:
            self.last.clear()
        self.last[key] = now
        return True


limiter = Limiter(BURST_SIZE, PER_SECOND)
limited = limiter.wait
rows = Limiter(ROWS_AT_ONCE, ROWS_PER_SECOND)
_measure = Every(MEASURE_EVERY_S)
_whole = Every(WHOLE_EVERY_S)
_heard = Every(LEAST_INTERVAL_S)


def interval_s() -> float:
    """Seconds that a node waits between two reports."""
    return max(heads.interval("node").total_seconds(), LEAST_INTERVAL_S)


def take(instance: Instance, report: Report, *, channel: str = "node", asked: bool = True) -> dict[str, Any]:
    """Store the report and say what is asked of the node. Raises BadReport or TooFarAhead before storing anything.

    `channel`: "local" for a reading that a worker on that machine made without a reporter. `asked`: whether anything can be
    asked of the node, where that is known.
    """
    received = clock.now()
    told = node_report.read(_plain(report, received), received_at=received)
    sent_at = parse_time(report.sent_at) or received
    if sent_at > received + AHEAD:
        ahead = sent_at - received
        raise TooFarAhead(
            f"the report is dated {ahead.total_seconds():.0f} s ahead of this server: set the node's clock (chrony, ntpd)",
            math.ceil((ahead - AHEAD).total_seconds()) if ahead <= LATER else None,
        )
    at = received if received - sent_at < PROMPT else sent_at
    extra = gpus.identity(told.gpus)
    digest = heads.digest_of(told.readings, extra)
    quiet = not told.events and not report.results and not report.recorder
    measure = _measure.due(instance.pk)
    values = gpus.measurements(told.gpus) if measure else {}
    whole = measure and (_whole.due(instance.pk) or values is None)
    # in one transaction with what looks whose they are: two reports of a node do that one after the other, by its head
    with transaction.atomic() if whole else nullcontext():
        found = None
        if quiet:
            found = unchanged.confirm(
                instance, channel, at, digest, boot_id=told.boot_id, seq=told.seq, received=received, measured=values
            )
        if found is not None and whole:
            gpus.sync(instance, told.gpus, received)
    if found is not None:
        if found < len(values or ()):
            with transaction.atomic():
                Head.objects.select_for_update().get(instance=instance, channel=channel)
                gpus.sync(instance, told.gpus, received)
        if measure:
            _update(instance, report, told, {})
        return _answered(instance, received, channel, asked)
    with transaction.atomic():
        item = record.Item(instance, told.readings, told.events, told.boot_id, told.seq, extra)
        outcome = record.record_many(channel, at, [item])[instance.pk]
        if outcome.duplicate:
            return {"accepted": True, "duplicate": True, "requests": [], "interval_s": interval_s()}
        made = outcome.rows
        if outcome.changed or measure:
            made += gpus.sync(instance, told.gpus, received)
        if made:
            rows.spent(instance.pk, made)
        _update(instance, report, told, {"node_seen_at": received})
        _results(instance, report, received)
        _recorder(instance, report, received)
    return _answered(instance, received, channel, asked)


def _plain(report: Report, received: datetime) -> dict[str, Any]:
    """As `node_report.read` takes it; an unknown uptime gives a boot time that nobody keeps."""
    plain = report.model_dump(by_alias=True)
    if plain["uptime_s"] is None:
        plain["uptime_s"] = 0.0
    return plain


def _update(instance: Instance, report: Report, told: node_report.NodeReading, values: dict[str, Any]) -> None:
    """Write `values`, and what changed of the instance itself. The boot time wavers with each report: the boot's first word
    counts."""
    if instance.boot_id != told.boot_id:
        values.update(boot_id=told.boot_id, booted_at=told.booted_at if report.uptime_s is not None else None)
    if told.driver and instance.driver_version != told.driver[:32]:
        values["driver_version"] = heads.text(told.driver, 32)
    if instance.reporter_version != report.reporter[:32]:
        values["reporter_version"] = heads.text(report.reporter, 32)
    if values:
        Instance.objects.filter(pk=instance.pk).update(**values)


def _answered(instance: Instance, received: datetime, channel: str, asked: bool) -> dict[str, Any]:
    """Only a reporter makes its place's node source speak, and only a reporter can be asked for anything."""
    place = (instance.account_id, instance.region)
    if channel == "node" and _heard.due(place):
        _heard_from(place, received)
    rows = _asked(instance, received) if channel == "node" and asked else []
    requests = [{"id": str(row.pk), "verb": row.verb} for row in rows]
    return {"accepted": True, "duplicate": False, "requests": requests, "interval_s": interval_s()}


def _heard_from(place: tuple[int, str], received: datetime) -> None:
    """The node source of the place: one round per interval in which any node was heard."""
    account, region = place
    known = Source.objects.filter(account_id=account, region=region, name="node", scope="")
    recent = Q(succeeded_at__gte=received - heads.gap_after("node"))
    if known.filter(recent).update(
        attempted_at=received, succeeded_at=received, error="", good_rounds=F("good_rounds") + 1, calls=F("calls") + 1
    ):
        return
    values = {"attempted_at": received, "succeeded_at": received, "error": "", "good_rounds": 1}
    Source.objects.update_or_create(
        account_id=account, region=region, name="node", scope="", defaults={**values, "interval_s": interval_s()}
    )


def _results(instance: Instance, report: Report, received: datetime) -> None:
    for result in report.results:
        if not result.request.isascii() or not result.request.isdigit() or len(result.request) > 18:
            continue
        answered = NodeRequest.objects.filter(
            pk=int(result.request), instance=instance, verb=result.verb, answered_at=None
        ).update(
            answered_at=received,
            ok=result.ok,
            output=heads.text(result.output, 70_000),
            checks=heads.clean([check.model_dump() for check in result.checks]),
        )
        if answered:
            record.look_again(instance.pk)


def _recorder(instance: Instance, report: Report, received: datetime) -> None:
    """The flight recorder is kept beside the events; nothing is decided on it. What somebody who has a node sends of it
    without end must not fill the database."""
    if not report.recorder:
        return
    day = HealthEvent.objects.filter(instance=instance, last_at__gt=received - timedelta(days=1), code=recorder.CODE)
    if day.count() >= RECORDINGS:
        return
    samples = heads.clean([sample.model_dump() for sample in report.recorder])
    HealthEvent.objects.create(
        instance=instance,
        source="node",
        code=recorder.CODE,
        at=received,
        last_at=received,
        received_at=received,
        boot_id=report.boot_id,
        text=f"{len(samples)} samples before the trouble",
        attrs={"samples": samples},
        backlog=True,
    )


def _asked(instance: Instance, received: datetime) -> list[NodeRequest]:
    """What is asked of the node and was not answered yet."""
    open_ones = NodeRequest.objects.filter(instance=instance, answered_at=None, expires_at__gt=received).order_by("pk")
    asked = [row for row in open_ones if row.delivered_at is None or row.delivered_at < received - ASK_AGAIN][:8]
    if asked:
        NodeRequest.objects.filter(pk__in=[row.pk for row in asked]).update(delivered_at=received)
    return asked

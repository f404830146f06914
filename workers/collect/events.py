"""EventBridge events of one place, out of its queue. Stored first, deleted after; whatever comes twice is known again.

An event is a hint. Announcements (Spot, rebalance, Capacity Block, AWS Health) are kept as events, or as a notice of the
place where they name no instance; of a state AWS is asked itself, and only its answer is believed.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Q

from healthboard import aws, clock
from healthboard.diagnosis import envelopes
from healthboard.diagnosis.envelopes import Envelope, Unusable
from healthboard.diagnosis.signals import Event
from healthboard.fleet import aws_notices, record
from healthboard.fleet.models import Account, Instance, Source, Task
from workers.collect import confirm, sources, store
from workers.collect.reader import Blind, Reader

log = logging.getLogger(__name__)
NAME = "events"
#: a round waits so long for a first message, shared by all places: a waiting worker does nothing else
WAIT_S = 5.0
#: messages of one call, and calls of one round
TEN, BATCHES = 10, 30
#: a message that was not deleted comes again after so long
HIDDEN_S = 60
#: EventBridge writes whole seconds
SECOND = timedelta(seconds=1)


@dataclass(slots=True)
class Batch:
    """What some messages come to: `news` to keep, and instances to ask ECS and EC2 about."""

    news: dict[int, list[Event]] = field(default_factory=lambda: defaultdict(list))
    rows: dict[int, Instance] = field(default_factory=dict)
    ecs: set[int] = field(default_factory=set)
    ec2: set[int] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    of_place: list[Event] = field(default_factory=list)  # AWS Health's, that name no instance


def places() -> list[tuple[str, str]]:
    """Places that have a queue. Elsewhere the source does not exist, and nothing is blind. Raises BadSetting."""
    found = [place for place in aws.places() if aws.event_queue(*place)]
    for source in Source.objects.filter(name=NAME).select_related("account"):
        if (source.account.account_id, source.region) not in found:
            source.delete()
    return found


def collect(account: Account, region: str) -> bool:
    """One round; False if there is no queue, it was not this one's turn, or the queue could not be read."""
    queue = aws.event_queue(account.account_id, region)
    claim = sources.claim(account, region, NAME) if queue else None
    if claim is None:
        return False
    reader = None
    try:
        reader = Reader("sqs", account=account.account_id, region=region, touch=claim.touch)
        url = queue if "/" in queue else reader.call("get_queue_url", QueueName=queue).get("QueueUrl")
        wait = int(clock.scaled(WAIT_S).total_seconds() / max(len(aws.places()), 1))
        asked: set[int] = set()
        for number in range(BATCHES):
            messages = _receive(reader, url, 0 if number else wait)
            if messages:
                take(account, region, claim, messages, asked)
                _delete(reader, url, messages)
            if len(messages) < TEN:
                break
    except Blind as blind:
        claim.failed(blind, calls=reader.calls if reader else 0)
        return False
    claim.good(calls=reader.calls)
    return True


def _receive(reader: Reader, url: str, wait: int) -> list[dict[str, Any]]:
    answer = reader.call(
        "receive_message", QueueUrl=url, MaxNumberOfMessages=TEN, WaitTimeSeconds=wait, VisibilityTimeout=HIDDEN_S
    )
    return answer.get("Messages") or []


def _delete(reader: Reader, url: str, messages: list[dict[str, Any]]) -> None:
    """Raises Blind, also where some were not deleted: they come again."""
    entries = [
        {"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(messages) if m.get("ReceiptHandle")
    ]
    failed = reader.call("delete_message_batch", QueueUrl=url, Entries=entries).get("Failed") or []
    if failed:
        reasons = ", ".join(sorted({str(row.get("Code")) for row in failed}))
        raise Blind(f"sqs delete_message_batch: {len(failed)} failed ({reasons})")


def take(account: Account, region: str, claim: sources.Claim, messages: list[dict[str, Any]], asked: set[int]) -> None:
    """Store what the messages say, in one transaction, with what AWS answers to their hints.

    `asked`: instances that AWS was asked about in this round already; once is enough, however many events there are.
    """
    batch = Batch()
    opened = _open(account, region, messages, batch)
    known = _known(account, region, opened)
    for envelope in sorted(opened, key=lambda e: e.order):
        _sort(envelope, known, batch)
    seen = confirm.read(
        account, region,
        ecs_of=[batch.rows[pk] for pk in sorted(batch.ecs - asked)],
        ec2_of=[batch.rows[pk] for pk in sorted(batch.ec2 - asked)],
    )  # fmt: skip
    asked |= batch.ecs | batch.ec2

    def write() -> None:
        confirm.write(account, region, seen)
        record.record_events(NAME, [(batch.rows[pk], events) for pk, events in batch.news.items()])
        aws_notices.keep(account, region, batch.of_place)
        claim.dropped(batch.dropped)

    store.settle(account, write)


def _open(account: Account, region: str, messages: list[dict[str, Any]], batch: Batch) -> list[Envelope]:
    found = []
    for message in messages:
        try:
            found.append(
                envelopes.read(message.get("Body"), account=account.account_id, region=region, now=clock.now())
            )
        except Unusable as why:
            batch.dropped[str(why)] += 1
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    """The instances that envelopes may mean, by what they name them with."""

    by_id: dict[str, Instance]
    by_arn: dict[str, Instance]
    by_block: dict[str, list[Instance]]

    def of(self, envelope: Envelope) -> list[Instance]:
        rows = [self.by_id[name] for name in envelope.instances if name in self.by_id]
        rows += [self.by_arn[envelope.container]] if envelope.container in self.by_arn else []
        rows += self.by_block.get(envelope.block, [])
        return list({row.pk: row for row in rows}.values())


def _known(account: Account, region: str, opened: list[Envelope]) -> _Known:
    ids = {name for envelope in opened for name in envelope.instances}
    arns = {envelope.container for envelope in opened if envelope.container}
    blocks = {envelope.block for envelope in opened if envelope.block}
    rows = Instance.objects.filter(account=account, region=region, gone_at=None).select_related("cluster")
    wanted = Q(instance_id__in=ids) | Q(container_arn__in=arns) | Q(reservation_id__in=blocks)
    by_block: dict[str, list[Instance]] = defaultdict(list)
    by_id, by_arn = {}, {}
    for row in rows.filter(wanted):
        by_id[row.instance_id] = row
        if row.container_arn:
            by_arn[row.container_arn] = row
        if row.reservation_id:
            by_block[row.reservation_id].append(row)
    return _Known(by_id, by_arn, by_block)


def _sort(envelope: Envelope, known: _Known, batch: Batch) -> None:
    """Where one envelope goes: to the events, to the questions, or to the dropped."""
    if envelope.of_place:
        batch.of_place += envelope.events
        return
    rows = known.of(envelope)
    if not rows:
        batch.dropped["unknown instance"] += 1
        return
    batch.rows.update({row.pk: row for row in rows})
    for event in envelope.events:
        for row in rows:
            if event.instance in (None, row.instance_id):
                batch.news[row.pk].append(event)
    if envelope.kind == envelopes.CONTAINER:
        _container(envelope, rows[0], batch)
    elif envelope.kind == envelopes.HEALTH:
        batch.ecs.add(rows[0].pk)
    elif envelope.kind == envelopes.TASK:
        _task(envelope, rows[0], batch)
    elif envelope.kind == envelopes.EC2_STATE:
        told = rows[0].seen_at is not None and rows[0].seen_at > envelope.at + SECOND
        if envelope.state != rows[0].state and not told:
            batch.ec2.add(rows[0].pk)
    elif envelope.kind == envelopes.ANNOUNCED:
        batch.ec2 |= {row.pk for row in rows}


def _container(envelope: Envelope, row: Instance, batch: Batch) -> None:
    """Most of these tell of a task's placement only; what ECS itself has told newer is never asked again."""
    same = not envelope.container or envelope.container == row.container_arn
    if same and envelope.version is not None and envelope.version <= row.ecs_version:
        if envelope.version < row.ecs_version:
            batch.dropped["older version"] += 1
        return
    if not same or envelope.status != row.ecs_status or envelope.connected != row.agent_connected:
        batch.ecs.add(row.pk)


def _task(envelope: Envelope, row: Instance, batch: Batch) -> None:
    """Of interest where a drain waits for the last task to leave."""
    if row.ecs_status == "DRAINING" and envelope.state == "STOPPED" and Task.objects.filter(instance=row).exists():
        batch.ecs.add(row.pk)

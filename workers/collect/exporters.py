"""The dcgm-exporters of one place: one round over many nodes, each asked for `/metrics` at its address in the inventory.

An exporter that does not answer makes its instance neither sick nor well: after three rounds its channel tells a GAP
with the reason. One that stops because the machine is drained is silent as expected, and that blocks nothing.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from healthboard import aws, clock, config
from healthboard.diagnosis import dcgm_scrape
from healthboard.diagnosis.dcgm_scrape import Scrape
from healthboard.diagnosis.signals import Event, Reading
from healthboard.fleet import heads, record
from healthboard.fleet.models import Account, Head, Instance, Interval, ScrapeMemory
from workers.collect import fetch, sources, store

CHANNEL = SOURCE = "dcgm"
PORT = 9400
#: seconds for one machine, divided by the sandbox's speed, but never less than a busy machine needs
NODE_S, LEAST_S = 5.0, 1.0
DRAINED = "silent because it is drained"
#: the same power values in so many scrapes and for so long are a frozen exporter; it reads its GPUs every 30 s or 60 s
STILL_SCRAPES, STILL_FOR = 3, timedelta(minutes=3)
#: samples that say themselves that they are older than this tell nothing of now
OLD = timedelta(minutes=3)
#: an exporter counts its Xids over five minutes: what was known longer ago has left its window
WINDOW = timedelta(minutes=5)


def collect(account: Account, region: str) -> bool:
    """One round; False if it was not this one's turn, or no exporter answered at all."""
    claim = sources.claim(account, region, SOURCE)
    if claim is None:
        return False
    try:
        where = port()
    except config.BadSetting as error:
        claim.failed(error)
        return False
    at = clock.now()  # what an exporter says was true when it was asked, or later
    rows = {row.pk: row for row in _wanted(account, region)}
    targets, answers = {}, {}
    for row in rows.values():
        try:
            targets[row.pk] = fetch.Target(address(row.private_ip), where)
        except ValueError as refused:
            answers[row.pk] = fetch.Failure(str(refused))
    limits = fetch.Limits(node_s=max(clock.scaled(NODE_S).total_seconds(), LEAST_S))
    answers |= fetch.gather(targets, partial(dcgm_scrape.read, at=at), limits=limits, tick=claim.touch)

    def write() -> str:
        memory = Memory.load(account, region, at)
        told = {pk: memory.judge(pk, answer) for pk, answer in answers.items()}
        silent = {pk: answer for pk, answer in told.items() if isinstance(answer, fetch.Failure)}
        items = [_item(rows[pk], *answer, at) for pk, answer in told.items() if pk not in silent]
        record.record_many(CHANNEL, at, [*items, *_gaps(rows, silent, at)])
        memory.save()
        return _trouble(rows, silent)

    trouble = store.settle(account, write)
    if trouble.startswith("none"):
        claim.failed(trouble, calls=len(targets))
        return False
    claim.good(calls=len(targets), note=trouble)
    return True


def _wanted(account: Account, region: str) -> Iterable[Instance]:
    """Running machines with GPUs (or of which that is unknown) of the pools that are named, in any order."""
    rows = Instance.objects.filter(account=account, region=region, gone_at=None, state="running")
    rows = rows.exclude(gpus_expected=0).exclude(private_ip=None).order_by("?")
    pools = config.exporters()
    return rows.filter(pool__name__in=pools) if pools else rows


def port() -> int:
    """Raises BadSetting. In the sandbox all exporters listen on the port of the sandbox itself."""
    if config.mode() == "sandbox":
        return urlsplit(aws.sandbox_endpoint()).port or PORT
    return int(config.number("HEALTHBOARD_EXPORTERS_PORT", PORT, least=1))


def address(private_ip: str) -> str:
    """Where the machine with this private address is reached. Raises ValueError where nobody may be asked.

    In the sandbox 10.1.2.3 is 127.1.2.3, whatever the inventory says: only loopback is ever reached. Elsewhere
    loopback and link-local (the metadata service) are never a machine's address.
    """
    found = ipaddress.ip_address(private_ip)
    if config.mode() == "sandbox":
        if found.version != 4:
            raise ValueError("its address is not on loopback, and the sandbox reaches nothing else")
        return "127." + str(found).partition(".")[2]
    if found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved:
        raise ValueError("its address is none of a machine")
    return str(found)


def _item(row: Instance, scrape: Scrape, events: list[Event], at: datetime) -> record.Item:
    return record.Item(row, scrape.readings, events, boot_id=row.boot_id)


def _gaps(rows: Mapping[int, Instance], silent: Mapping[int, fetch.Failure], at: datetime) -> list[record.Item]:
    """A GAP for each machine that was silent for three rounds, or is expected to be; a shorter pause is told as nothing."""
    known = {head.instance_id: head for head in Head.objects.filter(channel=CHANNEL, instance__in=list(silent))}
    open_gaps = Interval.objects.filter(head__in=known.values(), name="GAP", until=None)
    dark = set(open_gaps.values_list("instance_id", flat=True))
    found = []
    for pk, failure in silent.items():
        head, row = known.get(pk), rows[pk]
        drained = row.ecs_status == "DRAINING" or (head is not None and head.ended_by_us)
        lasting = head is None or pk in dark or at - head.last_at > heads.gap_after(CHANNEL)
        if failure.tried and (drained or lasting):
            why, attrs = (DRAINED, {"expected": True}) if drained else (failure.why, {})
            gap = Reading("GAP", why, SOURCE, at, at, attrs=attrs)
            found.append(record.Item(row, [gap], boot_id=row.boot_id))
    return found


def _trouble(rows: Mapping[int, Instance], silent: Mapping[int, fetch.Failure]) -> str:
    """What is wrong with the source as a whole; empty if every exporter that should answer did."""
    wanted = {pk for pk, row in rows.items() if row.ecs_status != "DRAINING"}
    missing = [failure for pk, failure in silent.items() if pk in wanted]
    if not missing:
        return ""
    why, _ = Counter(failure.why for failure in missing).most_common(1)[0]
    if len(missing) == len(wanted):
        return f"none of {len(wanted)} exporters answers as it should: {why}"
    return f"{len(missing)} of {len(wanted)} exporters do not answer as they should, most of them: {why}"


@dataclass(slots=True)
class Memory:
    """Per instance what the scrape before told: {"power", "since", "scrapes", "xids": [[gpu, xid, count]], "at"}."""

    row: ScrapeMemory
    kept: dict[str, dict[str, Any]]
    at: datetime

    @classmethod
    def load(cls, account: Account, region: str, at: datetime) -> Memory:
        row = ScrapeMemory.objects.filter(account=account, region=region).first()
        row = row or ScrapeMemory(account=account, region=region)
        return cls(row, {}, at)

    def judge(self, pk: int, answer: Scrape | fetch.Failure) -> tuple[Scrape, list[Event]] | fetch.Failure:
        """The scrape with the Xids that are new in it, or a Failure where what it tells is old."""
        before = self.row.kept.get(str(pk)) or {}
        if isinstance(answer, fetch.Failure):
            self.kept[str(pk)] = before
            return answer
        same = bool(answer.power) and before.get("power") == answer.power
        since = before["since"] if same else self.at.isoformat()
        scrapes = before["scrapes"] + 1 if same else 1
        compared = before and (same or self.at - datetime.fromisoformat(before["at"]) <= WINDOW)
        counted = {(gpu, xid): count for gpu, xid, count in before["xids"]} if compared else {}
        self.kept[str(pk)] = {
            "power": answer.power, "since": since, "scrapes": scrapes, "at": self.at.isoformat(),
            "xids": [[gpu, xid, count] for (gpu, xid), count in answer.xids.items()],
        }  # fmt: skip
        if scrapes >= STILL_SCRAPES and self.at - datetime.fromisoformat(since) >= STILL_FOR:
            return fetch.Failure(f"it serves old values: its power readings stand still since {since[:19]}Z")
        if answer.newest is not None and self.at - answer.newest > OLD:
            return fetch.Failure("it serves old values, by the times that they carry")
        return answer, dcgm_scrape.new_xids(answer, counted, at=self.at)

    def save(self) -> None:
        self.row.at, self.row.kept = self.at, {pk: kept for pk, kept in self.kept.items() if kept}
        self.row.save()

"""The chain over the audit rows: sealing what was committed, and verifying all of it.

Rows are inserted by many transactions at once and wait for nothing. One sealer at a time links the committed ones to
the end of the chain, by id within a round: a row that rests on another one has a higher id and was committed later, so
the chain never shows an effect before its cause. See docs/decisions/0015-the-audit-chain.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, Max, OuterRef

from healthboard import clock
from healthboard.audit import guard
from healthboard.audit.models import AuditRow, Seal
from healthboard.audit.record import digest

#: how far behind the newest sealed id a row may still be committed: transactions are shorter than that many rows
WINDOW = 20_000
#: a row that was committed so long after higher ids had been sealed was not written by a transaction of ours
LATE = timedelta(minutes=15)
PURGED = "audit.purged"
_LOCK = 0x68656164  # of the one sealer, on PostgreSQL
_BATCH = 2_000
_SEALED = (
    "id", "at", "user_id", "actor", "via", "verb", "subject", "account", "region", "instance", "case_id", "repair_id",
    "summary", "payload_hash", "request_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class End:
    """The end of a chain, or a point of it: what is kept outside the database."""

    position: int
    hash: str
    row: int


@dataclass(slots=True)
class Verified:
    """`broken`: one sentence for each row that is not as it was sealed. `end` is None where nothing is sealed."""

    seals: int = 0
    end: End | None = None
    broken: list[str] = field(default_factory=list)
    found: bool = False  # the head that was asked for


def end() -> End | None:
    last = Seal.objects.order_by("-position").values_list("position", "hash", "row_id").first()
    return End(*last) if last else None


def seal() -> int:
    """Link all committed rows to the chain; returns how many. Harmless when doubled: sealers take turns."""
    done = 0
    while _unsealed().exists():
        with transaction.atomic():
            count = _seal_batch()
        done += count
        if count < _BATCH:
            break
    return done


def _seal_batch() -> int:
    if connection.vendor == "postgresql":  # SQLite has one writer at a time anyway
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    last = end()
    position, previous, now = (last.position, last.hash, clock.now()) if last else (0, "", clock.now())
    made = []
    for row in _unsealed().order_by("pk").values(*_SEALED)[:_BATCH]:
        position += 1
        made.append(Seal(position=position, row_id=row["id"], previous=previous, sealed_at=now,
                         hash=link(previous, position, now, row)))  # fmt: skip
        previous = made[-1].hash
    Seal.objects.bulk_create(made)
    return len(made)


def _unsealed() -> Any:
    newest = Seal.objects.aggregate(n=Max("row_id"))["n"] or 0
    return AuditRow.objects.filter(~Exists(Seal.objects.filter(row_id=OuterRef("pk"))), pk__gt=newest - WINDOW)


def link(previous: str, position: int, sealed_at: datetime, row: dict[str, Any]) -> str:
    """Hash of one position: of the one before, of when it was sealed, and of the row with its payload's hash."""
    values = [_text(row[name]) for name in _SEALED]
    return digest([previous, position, _text(sealed_at), values])


def _text(value: Any) -> Any:
    return value.astimezone(UTC).isoformat(timespec="microseconds") if isinstance(value, datetime) else value


def verify(head: str = "", *, since: int = 0) -> Verified:
    """Walk the chain from position `since` + 1 to its end. `head`: a hash that must be in it, a position's or none."""
    seen = Verified()
    seen.broken += [f"the trigger {name} is missing: rows can be changed" for name in guard.missing(connection)]
    purged_before = max(_purges(), default=None)
    previous = Seal.objects.filter(position=since).values_list("hash", flat=True).first() or ""
    late, position = _Late(), since
    for part in _parts(since):
        rows = {row["id"]: row for row in AuditRow.objects.filter(pk__in=[s.row_id for s in part]).values(
            *_SEALED, "payload")}  # fmt: skip
        for one in part:
            if one.position != position + 1:
                seen.broken.append(f"{_span(position + 1, one.position - 1)} missing before row {one.row_id}")
            elif one.previous != previous:
                seen.broken.append(f"row {one.row_id} (position {one.position}) does not follow the one before it")
            seen.broken += _wrong(one, rows.get(one.row_id), purged_before)
            if late.came(one):
                seen.broken.append(f"row {one.row_id} (position {one.position}) was put in behind later rows")
            position, previous = one.position, one.hash
            seen.found |= bool(head) and one.hash == head
            seen.seals += 1
            seen.end = End(one.position, one.hash, one.row_id)
    seen.broken += _outside()
    return seen


def _parts(since: int) -> Iterator[list[Seal]]:
    at = since
    while part := list(Seal.objects.filter(position__gt=at).order_by("position")[:_BATCH]):
        yield part
        at = part[-1].position


def _wrong(one: Seal, row: dict[str, Any] | None, purged_before: datetime | None) -> Iterator[str]:
    where = f"row {one.row_id} (position {one.position})"
    if row is None:
        yield f"{where} was deleted"
        return
    if link(one.previous, one.position, one.sealed_at, row) != one.hash:
        yield f"{where} was changed: {row['verb']}, {row['subject']}"
    if row["payload"] is None:
        if purged_before is None or row["at"] >= purged_before:
            yield f"{where} has lost its payload, and no purge tells of it"
    elif digest(row["payload"]) != row["payload_hash"]:
        yield f"the payload of {where} was changed"


class _Late:
    """Tells rows whose id lies below ids that had been sealed long before they were."""

    def __init__(self) -> None:
        self.rounds: deque[tuple[datetime, int]] = deque()  # not long ago: when, and the highest id
        self.long_ago = 0  # the highest id that was sealed long ago

    def came(self, one: Seal) -> bool:
        while self.rounds and one.sealed_at - self.rounds[0][0] > LATE:
            self.long_ago = max(self.long_ago, self.rounds.popleft()[1])
        if self.rounds and self.rounds[-1][0] == one.sealed_at:
            self.rounds[-1] = (one.sealed_at, max(self.rounds[-1][1], one.row_id))
        else:
            self.rounds.append((one.sealed_at, one.row_id))
        return one.row_id < self.long_ago


def _outside() -> Iterator[str]:
    """Rows that no seal will ever hold: put in far behind the newest."""
    newest = Seal.objects.aggregate(n=Max("row_id"))["n"] or 0
    lost = AuditRow.objects.filter(~Exists(Seal.objects.filter(row_id=OuterRef("pk"))), pk__lte=newest - WINDOW)
    for pk, verb in lost.order_by("pk").values_list("pk", "verb")[:100]:
        yield f"row {pk} ({verb}) is not in the chain: it was put in behind later rows"


def _purges() -> Iterator[datetime]:
    """Until when payloads were purged, as the chain tells it."""
    for subject in AuditRow.objects.filter(verb=PURGED).values_list("subject", flat=True):
        try:
            yield datetime.fromisoformat(subject.removeprefix("before:"))
        except ValueError:
            continue


def _span(first: int, last: int) -> str:
    if first > last:
        return "an order without gaps is"
    return f"position {first} is" if first == last else f"positions {first} to {last} are"

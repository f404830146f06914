"""The sources that we listen to: who reads one now, when it last spoke, and how many full rounds in a row were good."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db.models import Case, F, Q, Value, When

from healthboard import clock
from healthboard.fleet import aws_answers
from healthboard.fleet.models import Account, Source
from healthboard.fleet.seeing import WATCH_ROUNDS
from healthboard.fleet.sources import blind

log = logging.getLogger(__name__)
#: in seconds at speed 1, and where it is another
INTERVAL_S = 60.0
INTERVALS_S = {"dcgm": 30.0, "local": 15.0, "events": 15.0}
#: sources that actions rest on: how AWS answers there says whether it is in trouble
RESTED_ON = frozenset({"ec2", "ecs", "autoscaling"})
#: a round that tells less than this share of what was known is not believed
SHARE = 0.5
#: with fewer known ones than this, every answer but an empty one is believed
FEW = 4
#: so many of the moments at which a source was lost are kept
LOSSES = 400
#: after so many answers alike, an hour of them, the answer is taken as the truth
DOUBTED_ROUNDS = 60


class Claim:
    """The right to read one source now."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._touched = time.monotonic()

    def touch(self) -> None:
        """Say that the round goes on, so that the next tick does not start a second one."""
        if time.monotonic() - self._touched > 1:
            self._touched = time.monotonic()
            Source.objects.filter(pk=self.source.pk).update(attempted_at=clock.now())

    def good(self, *, calls: int, note: str = "", at: datetime | None = None) -> None:
        """A full round. `note`: a part that could not be read; then the round does not count as good. `at`: when it began
        to ask, which is how old what it tells is; without it, now."""
        now = clock.now()
        row = Source.objects.filter(pk=self.source.pk)
        rounds = Value(0) if note else Value(1) if blind(self.source, now) else F("good_rounds") + 1
        began_before = When(watched_from__gt=self.source.attempted_at, then=Value(0))  # watched anew since it began
        row.update(
            succeeded_at=at or now,
            error=note[:1000],
            good_rounds=Case(began_before, default=rounds),
            calls=F("calls") + calls,
        )
        if self.source.watched_from is not None:
            row.filter(good_rounds__gte=WATCH_ROUNDS).update(watched_from=None)
        if not note and self.source.name in RESTED_ON:
            aws_answers.note(self.source.account, self.source.region, good=1)

    def overtaken(self, at: datetime) -> bool:
        """Whether a round that began later than this one, `at`, has told already: what this one read is older. Ask within
        the transaction that stores it. A word from the future is none: the clock was set back since."""
        later = Source.objects.filter(pk=self.source.pk, succeeded_at__gt=at, succeeded_at__lte=clock.now())
        return later.exists()

    def failed(self, why: object, *, calls: int = 0) -> None:
        """We could not see: the source is blind until a round succeeds."""
        log.warning("%s %s %s: %s", self.source.account, self.source.region, self.source, why)
        row = Source.objects.filter(pk=self.source.pk)
        if row.filter(good_rounds__gt=0).exists():
            lost = [*row.values_list("lost", flat=True).get(), [clock.now().isoformat(), str(why)[:100]]][-LOSSES:]
            row.update(lost=lost)
        row.update(error=str(why)[:1000], good_rounds=0, calls=F("calls") + calls)
        if self.source.name in RESTED_ON:
            aws_answers.note(self.source.account, self.source.region, bad=1, error=f"{self.source}: {why}")

    def dropped(self, reasons: Mapping[str, int]) -> None:
        """Count messages that were not used. Call inside the transaction that settles them."""
        if not reasons:
            return
        row = Source.objects.select_for_update().get(pk=self.source.pk)
        row.dropped = dict(Counter(row.dropped) + Counter(reasons))
        row.save(update_fields=["dropped"])

    def doubt(self, told: int, known: int, what: str) -> str:
        """Why a round that told so few of the known ones is not believed, or empty. `told`: how many of these it told.

        Counted in answers and not in time: of a time in which nobody asked, an answer says nothing. One that tells far
        fewer than those before it is another one.
        """
        source = self.source
        doubted, most = source.doubted_rounds, source.doubted_told
        if not known or told >= known * SHARE or (told and known < FEW):
            rounds, most = 0, 0
        elif doubted and told >= most * SHARE:
            rounds, most = doubted + 1, max(told, most)
        else:
            rounds, most = 1, told
        if (rounds, most) != (doubted, source.doubted_told):
            source.doubted_rounds, source.doubted_told = rounds, most
            Source.objects.filter(pk=source.pk).update(doubted_rounds=rounds, doubted_told=most)
        if not rounds or rounds > DOUBTED_ROUNDS:
            return ""
        return f"only {told} of {known} known {what} were told: not believed until {DOUBTED_ROUNDS} rounds have said so"


def source_of(account: Account, region: str, name: str, scope: str = "") -> Source:
    source, _ = Source.objects.get_or_create(
        account=account, region=region, name=name, scope=scope, defaults={"interval_s": _interval(name).total_seconds()}
    )
    source.account = account  # at hand: no round reads it again
    return source


def claim(account: Account, region: str, name: str, scope: str = "") -> Claim | None:
    """None while a round of this source is under way, or was less than half an interval ago."""
    source, now = source_of(account, region, name, scope), clock.now()
    free = Q(attempted_at=None) | Q(attempted_at__lte=now - _interval(name) / 2)
    interval = _interval(name).total_seconds()
    if not Source.objects.filter(free, pk=source.pk).update(attempted_at=now, interval_s=interval):
        return None
    source.attempted_at = now
    if source.good_rounds and blind(source, now):  # what was in a row ended with the silence, whatever this round tells
        source.good_rounds = 0
        Source.objects.filter(pk=source.pk).update(good_rounds=0)
    return Claim(source)


def _interval(name: str) -> timedelta:
    return clock.scaled(INTERVALS_S.get(name, INTERVAL_S))

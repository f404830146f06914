"""Breakers of their own for trouble that lasts: AWS that fails, and sources that stay blind, or come and go, while
repairs wait for them.

A short trouble only holds (see `seeing`) and ends by itself. The bounds here are real time, whatever the sandbox's
speed, so that a busy machine trips nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard import aws, clock
from healthboard.cases.models import Case
from healthboard.fleet import aws_answers
from healthboard.fleet.models import Account, Pulse, Source
from healthboard.fleet.seeing import wanted
from healthboard.fleet.sources import blind
from healthboard.people.actors import WORKER
from healthboard.repairs import brakes
from healthboard.repairs.models import Breaker, Repair
from healthboard.repairs.states import OPEN
from healthboard.repairs.waiting import waits_for_sight
from workers import pulse

#: AWS errors: of the last minutes so many had failures, so many in all, and this share of all that was asked
WINDOW = timedelta(minutes=15)
MINUTES, FAILURES, SHARE = 10, 20, 0.5
#: a source that an open repair, or the decision of a case, rests on, blind for so long
BLIND_FOR = timedelta(minutes=15)
#: a source that is lost and sees again: so often within that time, and in this share of its rounds
FLAP_WINDOW = timedelta(minutes=30)
FLAPS, FLAP_SHARE = 6, 0.25
EVERY = timedelta(seconds=10)


def look() -> None:
    """Open what is due, at most once in ten seconds."""
    now = clock.now()
    if Pulse.objects.filter(name="breakers", at__gt=now - EVERY, at__lte=now).exists():
        return
    for account_id, region in aws.places():
        account = Account.objects.filter(account_id=account_id).first()
        if account is not None:
            _aws_errors(account, region, now)
            _blind(account, region, now)
    pulse.beat("breakers")


def _aws_errors(account: Account, region: str, now: datetime) -> None:
    since = max(now - WINDOW, _released(account, region, "AWS_ERRORS") or now - WINDOW)
    told = aws_answers.since(account, region, since)
    if told.minutes < MINUTES or told.bad < FAILURES or told.bad < SHARE * (told.good + told.bad):
        return
    why = (
        f"{told.bad} of {told.good + told.bad} rounds and calls failed within {WINDOW.total_seconds() / 60:.0f} minutes"
        f", in {told.minutes} of them; the last: {told.error}"
    )
    brakes.open_breaker(
        account=account, region=region, kind="AWS_ERRORS", scope_kind="place", scope="", why=why, actor=WORKER
    )


def _blind(account: Account, region: str, now: datetime) -> None:
    released = _released(account, region, "BLIND")
    here = {"instance__account": account, "instance__region": region}
    held = Repair.objects.filter(state__in=OPEN, **here).select_related("instance__cluster")
    cases = Case.objects.filter(state="WAITING", mode="auto", **here).select_related("instance__cluster")
    waiting = [*held, *filter(waits_for_sight, cases)]
    for row in sorted(waiting, key=lambda row: row.opened_at):
        for name, source in wanted(row.instance).items():
            if why := _lasts(source, name, row.opened_at, released, now):
                brakes.open_breaker(
                    account=account, region=region, kind="BLIND", scope_kind="place", scope="", why=why, actor=WORKER
                )
                return


def _lasts(source: Source | None, name: str, opened: datetime, released: datetime | None, now: datetime) -> str:
    """Why nothing comes of what waits for this source since `opened`, in words; empty where it is only a short trouble."""
    since = _blind_since(source, opened, released, now)
    if since is not None and now - since > BLIND_FOR:
        said = source.error if source is not None else ""
        return f"{source or name} is blind since {since:%H:%M:%S} while repairs wait for it: {said or 'no answer'}"
    times = _flaps(source, max(opened, released or opened), now) if source is not None else 0
    if not times:
        return ""
    return (
        f"{source} was lost {times} times within {FLAP_WINDOW.total_seconds() / 60:.0f} minutes and saw again in between, "
        f"so that what waits for it never goes on for long; the last time: {source.lost[-1][1]}"
    )


def _flaps(source: Source, begun: datetime, now: datetime) -> int:
    """How often it was lost since something has waited for it, where that is so often that nothing comes of it: in a
    quarter of its rounds, after each of which two good ones are waited for; 0 where it is not."""
    rounds = FLAP_WINDOW.total_seconds() / max(source.interval_s, 1)
    since = max(now - FLAP_WINDOW, begun)
    times = sum(1 for at, _ in source.lost if since < datetime.fromisoformat(at) <= now)
    return times if times >= max(FLAPS, rounds * FLAP_SHARE) else 0


def _blind_since(source: Source | None, opened: datetime, released: datetime | None, now: datetime) -> datetime | None:
    """From when on we were there to look and saw nothing; None while it sees."""
    if source is None or source.succeeded_at is None:
        return max(opened, released or opened)
    if not blind(source, now):
        return None
    # while healthboard itself stood still nobody asked
    return max(t for t in (source.succeeded_at, source.watched_from, released) if t is not None)


def _released(account: Account, region: str, kind: str) -> datetime | None:
    rows = Breaker.objects.filter(account=account, region=region, kind=kind, released_at__isnull=False)
    return rows.order_by("-released_at").values_list("released_at", flat=True).first()

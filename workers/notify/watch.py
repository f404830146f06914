"""What only time shows, and somebody should be told of: a question that is about to expire, a source that went blind."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from healthboard import clock, words
from healthboard.cases import telling
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.fleet.models import Account, Source
from healthboard.fleet.sources import blind, listened_to
from healthboard.notices import outbox
from healthboard.notices.kinds import Event
from healthboard.notices.models import Notice

#: a question is told again so long before it expires, or in the last quarter of its time where that is shorter
SOON = timedelta(minutes=10)


def look() -> None:
    """Harmless when doubled: each thing is told once."""
    now = clock.now()
    _expiring(now)
    _blind(now)


def _expiring(now: datetime) -> None:
    soon = Case.objects.filter(state=State.WAITING, expires_at__gt=now, expires_at__lte=now + SOON)
    cases = list(soon.select_related("account", "pool", "instance").order_by("expires_at")[:200])
    asked = Notice.objects.filter(
        thread__in=[telling.thread(case.pk) for case in cases], kind__in=("case_waiting", "case_expiring")
    )
    newest = {row.thread: row for row in asked.order_by("pk")} if cases else {}
    for case in cases:
        key = f"case-expiring-{case.pk}-{case.expires_at.timestamp():.0f}"
        last = newest.get(telling.thread(case.pk))
        if last is not None and (last.key == key or case.expires_at - now > (case.expires_at - last.created_at) / 4):
            continue
        left = words.span((case.expires_at - now).total_seconds())
        telling.tell(
            case, "case_expiring", key=key, subject=f"{case.title}: expires in {left}",
            body="If nobody answers, nothing is done and it is asked anew.",
        )  # fmt: skip


def _blind(now: datetime) -> None:
    """One matter for each account and region: it begins with the first blind source and ends when all see again."""
    places: dict[tuple[Account, str], list[Source]] = {}
    for source in listened_to().select_related("account").order_by("name", "scope"):
        places.setdefault((source.account, source.region), []).append(source)
    for (account, region), sources in places.items():
        # what has never told anything and has no error was not asked yet
        dark = [s for s in sources if blind(s, now) and (s.succeeded_at or s.error)]
        _tell_place(account, region, dark, now)


@transaction.atomic
def _tell_place(account: Account, region: str, dark: list[Source], now: datetime) -> None:
    thread = f"blind:{account.account_id}:{region}"
    told: set[str] = set()
    for row in Notice.objects.filter(thread=thread).order_by("-pk")[:50]:
        if row.event == Event.RESOLVE:
            break
        told |= set(row.facts.get("Sources", "").split(", "))
    if not dark:
        if told:
            outbox.follow(
                thread, key=f"sees-{thread}-{now.isoformat()}", kind="sees", body="Nothing is held for it any more.",
                subject=f"All sources of {account} {region} see again",
            )  # fmt: skip
        return
    if not (new := [s for s in dark if str(s) not in told]):
        return
    # since when is part of the key: two workers that look at once tell it once
    since = max((s.succeeded_at or s.attempted_at or now for s in new), default=now)
    outbox.announce(
        key=f"{thread}-{','.join(str(s.pk) for s in new)}-{since.isoformat()}", kind="blind", thread=thread,
        subject=f"{words.listing([str(s) for s in new])} of {account} {region}: blind",
        body="; ".join(f"{s}: {s.error or 'no round for too long'}" for s in new)[:2000], link="/system/#sources",
        account=account.account_id, region=region, facts={"Sources": ", ".join(str(s) for s in new)},
    )  # fmt: skip

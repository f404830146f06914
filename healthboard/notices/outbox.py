"""Writing an outgoing message in the transaction of the change that it announces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction

from healthboard import clock, words
from healthboard.notices.kinds import KINDS, OPERATORS, Event
from healthboard.notices.models import Notice, Target
from healthboard.wake import wake

#: an application's fault is told once it is known how far it reaches: seconds at speed 1
GATHER_S = 60.0


def announce(
    *, key: str, kind: str, subject: str, body: str = "", link: str = "", to: Iterable[str] = (OPERATORS,),
    thread: str = "", severity: str = "", account: str = "", region: str = "", pool: str = "",
    workloads: Iterable[str] = (), facts: Mapping[str, Any] | None = None, only: Target | None = None,
    after: timedelta = timedelta(0),
) -> bool:  # fmt: skip
    """One message per `key`: said again, it is not written again. Returns True where it is new.

    `to`: names of receivers. `thread`: what it is about; the kind says whether it begins there, goes on or ends.
    """
    now = clock.now()
    known = KINDS[kind]
    _, new = Notice.objects.get_or_create(
        key=_short(key),
        defaults={
            "kind": kind, "event": str(known.event), "severity": severity or known.severity, "thread": thread[:200],
            "receivers": sorted(set(to)), "account": account, "region": region, "pool": pool,
            "workloads": sorted(set(workloads)), "subject": _clean(subject)[:255], "body": _clean(body),
            "facts": {str(k): _clean(str(v)) for k, v in (facts or {}).items() if v}, "link": link, "only": only,
            "created_at": now, "updated_at": now, "next_at": now + after,
        },
    )  # fmt: skip
    if new:
        wake("workers.notify.sweep")
    return new


def follow(
    thread: str, *, key: str, kind: str, subject: str, body: str = "", facts: Mapping[str, Any] | None = None
) -> bool:
    """How a matter went on, to whom it concerned. Of what nobody was told, or what is over, there is nothing to tell."""
    last = Notice.objects.filter(thread=thread).order_by("-pk").first()
    if last is None or last.event == Event.RESOLVE:
        return False
    return announce(
        key=key, kind=kind, subject=subject, body=body, link=last.link, to=last.receivers, thread=thread,
        account=last.account, region=last.region, pool=last.pool, workloads=last.workloads,
        facts={**last.facts, **(facts or {})},
    )  # fmt: skip


def receivers_of(thread: str) -> list[str]:
    """Who was told last in a thread; operators where nobody was."""
    found = Notice.objects.filter(thread=thread).order_by("-pk").values_list("receivers", flat=True).first()
    return found or [OPERATORS]


@transaction.atomic
def tally(*, key: str, code: str, workload: str, instance: str, count: int, why: str, link: str, to: Iterable[str],
          **place: str) -> None:  # fmt: skip
    """An application's fault, counted over its instances: one message for its owner, which says how many of each."""
    where = ":".join([*(place.get(part, "") for part in ("account", "region")), workload])
    announce(
        key=key, kind="workload", subject=f"{code} in {workload} on {instance}", body=why, link=link, to=to,
        thread=f"workload:{where}:{code}", workloads=[workload], after=clock.scaled(GATHER_S), **place,
    )  # fmt: skip
    known = Notice.objects.filter(key=_short(key)).values_list("tally", flat=True).get()
    if known.get(instance) == count:
        return  # a reading that says nothing new writes nothing
    row = Notice.objects.select_for_update().get(key=_short(key))
    row.tally = {**row.tally, instance: count}
    row.count = sum(row.tally.values())
    on = instance if len(row.tally) == 1 else f"{len(row.tally)} instances"
    row.subject = _clean(f"{code} in {workload} on {on}: {words.count(row.count, 'time')}")[:255]
    row.updated_at = clock.now()
    row.save(update_fields=["tally", "count", "subject", "updated_at"])


def _short(key: str) -> str:
    """A key that fits: of a long one the beginning and a digest, since what differs may stand at its end."""
    if len(key) <= 200:
        return key
    return f"{key[:135]}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()}"


def _clean(text: str) -> str:
    """What nodes and AWS say may hold what PostgreSQL refuses, or what turns the words after it around."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)

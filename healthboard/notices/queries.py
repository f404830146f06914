"""Reads about what is told: each target with what is on its way, and what did not arrive."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count, Max, Min, OuterRef, Q, Subquery

from healthboard import clock
from healthboard.notices.kinds import OPERATORS
from healthboard.notices.models import Delivery, Notice, Target
from healthboard.notices.routing import GIVEN_UP


def standing() -> list[Target]:
    """Every target with `waiting`, `troubled` (tried in vain so far), `given_up` (in the last day), `last_sent` and
    `error`, the newest reason of either; those in trouble first. One query."""
    recent = clock.now() - GIVEN_UP
    bad = Q(deliveries__state="PENDING", deliveries__attempts__gt=0) & ~Q(deliveries__error="")
    gone = Q(deliveries__state="FAILED", deliveries__ended_at__gt=recent)
    wrong = Delivery.objects.filter(target=OuterRef("pk")).exclude(error="")
    wrong = wrong.filter(Q(state="PENDING") | Q(state="FAILED", ended_at__gt=recent)).order_by("-pk")
    rows = Target.objects.annotate(
        waiting=Count("deliveries", filter=Q(deliveries__state="PENDING")),
        troubled=Count("deliveries", filter=bad),
        given_up=Count("deliveries", filter=gone),
        last_sent=Max("deliveries__ended_at", filter=Q(deliveries__state="SENT")),
        error=Subquery(wrong.values("error")[:1]),
    )
    return sorted(rows, key=lambda target: (not (target.troubled or target.given_up), target.name))


def oldest_due() -> datetime | None:
    """When the notice was due that waits longest for the sender: a time in the past means that it does not come round.
    What is tried in vain is due again later each time, and what quiet hours put off is due at their end."""
    rows = (Delivery.objects.filter(state="PENDING"), Notice.objects.filter(routed_at=None))
    return min(filter(None, (row.aggregate(at=Min("next_at"))["at"] for row in rows)), default=None)


def unheard(targets: Iterable[Target], named: Iterable[Iterable[str]]) -> list[str]:
    """Receivers that policies name, and no target listens to: what goes to them alone reaches nobody."""
    listening = {name for t in targets if t.enabled for name in (t.name, *t.receivers)}
    return sorted({OPERATORS, *(name for names in named for name in names)} - listening)


def uncalled(targets: Iterable[Target], named: Iterable[Iterable[str]]) -> list[str]:
    """Webhooks that policies want called before a drain, and that are not there or are switched off."""
    hooks = {t.name for t in targets if t.enabled and t.kind == Target.Kind.WEBHOOK}
    return sorted({name for names in named for name in names} - hooks)


def version(rows: list[Target]) -> list[tuple[object, ...]]:
    """What a page shows of `standing` as values to compare."""
    return [(t.pk, t.name, t.enabled, t.waiting, t.troubled, t.given_up, t.last_sent, t.error) for t in rows]

"""What time alone does to cases."""

from __future__ import annotations

import logging
from datetime import timedelta

from healthboard import clock
from healthboard.cases import ends
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.people import second
from workers.decide import instance

log = logging.getLogger(__name__)
#: how often an open case is read again without new evidence, in seconds at speed 1
EVERY_S = 30.0
#: never sooner, whatever the speed: many open cases must not keep the queue from what is new
LEAST = timedelta(seconds=4)


def pass_over() -> None:
    now = clock.now()
    for pk in Case.objects.filter(state=State.WAITING, expires_at__lte=now).values_list("pk", flat=True):
        ends.expire(pk)
    for pk in Case.objects.filter(state=State.SNOOZED, snoozed_until__lte=now).values_list("pk", flat=True):
        ends.wake_snoozed(pk)
    second.expire_due()
    # plans, budgets and clearing move with time: read again what is open and undecided
    waiting = Case.objects.exclude(state__in=[State.CLOSED, State.DECIDED]).exclude(instance=None)
    waiting = waiting.filter(instance__evaluated_at__lte=now - max(clock.scaled(EVERY_S), LEAST))
    for pk in waiting.order_by("changed_at").values_list("instance_id", flat=True)[:200]:
        try:
            instance.read(pk)
        except Exception:
            log.exception("re-reading of instance row %s failed", pk)

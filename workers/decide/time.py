"""What time alone does to cases."""

from __future__ import annotations

import logging

from healthboard import clock
from healthboard.cases import ends
from healthboard.cases.models import Case
from healthboard.cases.states import State
from workers.decide import instance

log = logging.getLogger(__name__)


def pass_over() -> None:
    now = clock.now()
    for pk in Case.objects.filter(state=State.WAITING, expires_at__lte=now).values_list("pk", flat=True):
        ends.expire(pk)
    for pk in Case.objects.filter(state=State.SNOOZED, snoozed_until__lte=now).values_list("pk", flat=True):
        ends.wake_snoozed(pk)
    # plans, budgets and clearing move with time: read again what is open and undecided
    waiting = Case.objects.exclude(state__in=[State.CLOSED, State.DECIDED]).exclude(instance=None)
    for pk in waiting.order_by("changed_at").values_list("instance_id", flat=True)[:200]:
        try:
            instance.read(pk)
        except Exception:
            log.exception("re-reading of instance row %s failed", pk)

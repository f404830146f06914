"""The end of a repair, carried back to its case; what a lost wake-up missed is found by the sweep."""

from __future__ import annotations

from healthboard.cases import ends
from healthboard.fleet.models import Gpu
from healthboard.repairs.models import Repair
from healthboard.repairs.states import CLOSED


def sweep() -> int:
    """Returns how many repairs were carried back."""
    rows = Repair.objects.filter(state__in=CLOSED, carried_back_at=None).select_related("instance__account")
    done = 0
    for repair in rows.order_by("closed_at")[:200]:
        if repair.outcome == "REPLACED":
            _condemn(repair)
        ends.carry_back(repair)
        done += 1
    return done


def _condemn(repair: Repair) -> None:
    """Remember the hardware that a repair gave back, so that it is known when it comes again."""
    decision = getattr(repair, "decision", None)
    gpu, code = (decision.case.gpu, decision.case.code) if decision else ("", "")
    if gpu and decision.case.verdict == "HARDWARE":
        Gpu.objects.filter(account=repair.instance.account, uuid=gpu, condemned_at=None).update(
            condemned_at=repair.closed_at, condemned_why=f"{code}, repair {repair.pk}"[:255]
        )

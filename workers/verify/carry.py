"""The end of a repair, carried back to its case; what a lost wake-up missed is found by the sweep."""

from __future__ import annotations

from healthboard.cases import ends
from healthboard.fleet import condemned
from healthboard.people.actors import WORKER
from healthboard.repairs.models import Repair
from healthboard.repairs.states import CLOSED

#: outcomes after which the broken hardware is Amazon's again
GIVEN_BACK = ("REPLACED", "REPLACED_BY_GROUP", "RELOCATED")


def sweep() -> int:
    """Returns how many repairs were carried back."""
    rows = Repair.objects.filter(state__in=CLOSED, carried_back_at=None)
    over = list(rows.order_by("closed_at").values_list("pk", flat=True)[:200])  # almost always none: a small question
    if not over:
        return 0
    done = 0
    for repair in (
        Repair.objects.filter(pk__in=over).select_related("instance__account", "replacement").order_by("closed_at")
    ):
        if repair.outcome in GIVEN_BACK:
            _condemn(repair)
        ends.carry_back(repair)
        done += 1
    return done


def _condemn(repair: Repair) -> None:
    """Remember the hardware that a repair gave back, so that it is known when it comes again."""
    decision = getattr(repair, "decision", None)
    case = decision.case if decision else None
    if case is None or case.verdict != "HARDWARE":
        return
    kept = case.evidence.order_by("-pk").first()
    found = (kept.assessment or {}).get("findings", []) if kept else []
    others = [f.get("gpu") for f in found if f.get("verdict") == "HARDWARE" and f.get("action") == "REPLACE"]
    condemned.condemn(
        repair.instance, [case.gpu, *others], f"{case.code}, repair {repair.pk}", actor=WORKER, repair_id=repair.pk,
        heir=repair.replacement,
    )  # fmt: skip

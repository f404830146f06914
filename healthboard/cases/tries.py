"""What was tried before, on an instance and in its slot: the chain of an instance, the one it replaced, and so on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from healthboard import clock
from healthboard.diagnosis.fault_classes import fault_class
from healthboard.fleet.models import Instance
from healthboard.repairs import opening
from healthboard.repairs.models import Call, Repair
from healthboard.repairs.recipes import recipe
from healthboard.repairs.states import CLOSED, OPEN, State

WITHIN = timedelta(hours=24)
ACTIONS = ("REBOOT", "REPLACE", "RELOCATE")
#: links of a chain that are followed back
LINKS = 20


def slot(instance: Instance) -> list[int]:
    """Keys of the instance, of the one that it replaced, of the one that that one replaced …; the newest first."""
    found = [instance.pk]
    while len(found) < LINKS:
        before = Repair.objects.filter(replacement=found[-1]).order_by("-pk").values_list("instance", flat=True).first()
        if before is None or before in found:
            break
        found.append(before)
    return found


def ended(links: list[int]) -> int:
    """Repairs of these instances that ended within 24 hours.

    One that was undone after it had changed something was a try as well: a fault that comes and goes has an end.
    """
    changed = Exists(Call.objects.filter(opening.changing(), repair=OuterRef("pk")))
    counted = Q(state__in=[State.SUCCEEDED, State.FAILED]) | Q(changed, state=State.CANCELLED)
    return _ended(links).filter(counted).count()


def tried(instance: Instance) -> list[str]:
    """Actions that were carried out on this instance within 24 hours."""
    found: set[str] = set()
    for repair in _ended([instance.pk]).filter(Q(state=State.SUCCEEDED) | Q(irreversible=True)):
        found |= {repair.action, *repair.facts.get("tried", [])}
    return sorted(found)


@dataclass(frozen=True, slots=True)
class Before:
    """The machine whose place an instance takes or took within 24 hours; all empty where there is none."""

    instance: str = ""
    fault: str = ""  # class of fault that it was replaced for
    under_way: bool = False  # its repair is not over


def before(instance: Instance) -> Before:
    lately = Q(state__in=OPEN) | Q(closed_at__gt=clock.now() - WITHIN)
    rows = Repair.objects.filter(lately, replacement=instance).select_related("instance", "decision__case")
    repair = rows.order_by("-pk").first()
    if repair is None:
        return Before()
    decision = getattr(repair, "decision", None)
    fault = fault_class(decision.case.code) if decision is not None else ""
    return Before(str(repair.instance), fault, repair.closed_at is None)


def heavier(action: str, owner: str, ladder: Sequence[str], done: Collection[str]) -> tuple[str, str]:
    """(action, why a person decides): what was done already is not done again, but the next rung of the ladder."""
    if action not in ladder:
        return action, f"{action} was tried within 24 hours" if action in done else ""
    least = max((ladder.index(a) + 1 for a in done if a in ladder), default=0)
    for rung in ladder[max(least, ladder.index(action)) :]:
        if recipe(rung, owner):
            return rung, ""
    said = " and ".join(a for a in ladder if a in done)
    return action, f"{said} was tried within 24 hours, and the ladder has nothing heavier" if said else ""


def _ended(links: list[int]) -> QuerySet[Repair]:
    since = clock.now() - WITHIN
    return Repair.objects.filter(instance__in=links, state__in=CLOSED, closed_at__gt=since, action__in=ACTIONS)

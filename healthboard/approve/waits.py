"""What waits for a person beside cases: repairs that ask, and what was asked for and wants a second person. A repair that
asks leaves its case decided, so no state of cases tells of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, QuerySet, Value

from healthboard.approve.second import where
from healthboard.cases import second
from healthboard.cases.models import Case
from healthboard.cases.states import State
from healthboard.fleet import foreign
from healthboard.people import access
from healthboard.people import second as people_second
from healthboard.people.models import Request
from healthboard.repairs.agreement import place
from healthboard.repairs.models import Repair
from healthboard.repairs.states import State as Stage

#: requests that a page lists: each takes some reads to say who may confirm it, and they are over within an hour
MOST = 20
#: what a row of a repair that asks shows
_ROW = (
    "action", "state", "step", "why_waiting", "opened_at", "pool__name", "instance__instance_id", "instance__region",
    "instance__zone", "instance__account__account_id", "decision__case",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waits:
    """How many of each a person sees, and cheap values that change when others come in their place."""

    cases: int = 0
    repairs: int = 0
    requests: int = 0
    mark: tuple[Any, ...] = ()

    @property
    def total(self) -> int:
        return self.cases + self.repairs + self.requests


def count(see: foreign.See) -> Waits:
    """One query: it is part of every page's frame."""
    parts: dict[str, QuerySet[Any]] = {
        "cases": see(Case.objects.filter(state=State.WAITING)),
        "repairs": see(asking(), prefix="instance__"),
        "requests": requests(see),
    }
    first, *rest = (
        rows.order_by().values(part=Value(name)).annotate(n=Count("pk"), newest=Max("pk")).values_list("part", "n", "newest")
        for name, rows in parts.items()
    )  # fmt: skip
    found = sorted(row for row in first.union(*rest, all=True) if row[1])
    return Waits(**{kind: n for kind, n, _ in found}, mark=tuple(found))


def asking() -> QuerySet[Repair]:
    """Repairs that stand still until a person answers them."""
    return Repair.objects.filter(state=Stage.ASKING)


def requests(see: foreign.See) -> QuerySet[Request]:
    """What waits for a second person in the places of a person (`access.seeing`), the first to expire first."""
    rows = people_second.waiting()
    return rows if foreign.sees_all(see) else see(rows, pool="pool") | rows.filter(account=None, region="", pool="")


def repairs_shown(user: Any, see: foreign.See, most: int) -> list[Repair]:
    """Repairs that ask, the oldest first, each with why this person may not answer it, or None."""
    rows = see(asking(), prefix="instance__").select_related("instance__account", "pool", "decision").only(*_ROW)
    found = foreign.rows(see, rows.order_by("opened_at")[:most], "why_waiting")
    may = access.asking(user, "decide")
    for row in found:
        row.why_not = may(**place(row))
    return found


def requests_shown(user: Any, see: foreign.See) -> list[Request]:
    """At most `MOST`, each with why this person may not confirm it (None: may), whether it is their own, and where it is
    confirmed."""
    found = second.shown(user, foreign.rows(see, requests(see)[:MOST], "what", "reason"))
    for row in found:
        row.where = where(row)
    return found


def mine(rows: Iterable[Any]) -> int:
    """How many of them wait for this person."""
    return sum(1 for row in rows if row.why_not is None)

"""The list of cases, open and closed, by the filters of an address; what the counts of a precedent link to.

A case's signature is its decisive code, or all its codes together in their order.
"""

from __future__ import annotations

import re
from typing import Any

from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet, TextField
from django.db.models.functions import Cast

from healthboard import spans, words
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import Resolution, State
from healthboard.repairs.states import State as RepairState

#: parameters of an address that say which cases, in its order of writing
PARAMS = (
    "q", "state", "end", "code", "codes", "type", "pool", "verdict", "done", "answer", "since", "until", "of", "but",
)  # fmt: skip
#: `state` -> its name on the tab
TABS = {"open": "Open", "closed": "Closed", "all": "All"}
#: `end` beside the resolutions: the machine, or what took its place, was good again
HELPED = "helped"
ENDS = (HELPED, *(str(one) for one in Resolution))
#: `of`: the cases that the statistics count
COUNTED = "counted"
ANSWERS = tuple(str(kind) for kind in Decision.Kind)
#: decisions with their repairs, for `last_answer`
WITH_ANSWERS = Prefetch(
    "decisions",
    Decision.objects.select_related("repair").only(
        "case", "kind", "action", "actor", "reason", "outcome_why", "undone_at", "repair__state"
    ),
)
#: what a row of the list shows or exports; whole rows are long, with those that hang on them
_ROW = (
    "region", "state", "resolution", "resolution_note", "verdict", "action", "mode", "mode_why", "code", "codes", "title",
    "why", "why_waiting", "plan_version", "evidence_hash", "opened_at", "expires_at", "closed_at", "account__account_id",
    "pool__name", "instance__instance_id", "instance__instance_type",
)  # fmt: skip
_XID = re.compile(r"^(?:xid[_:#-]?)?(\d{1,4})$", re.I)
_BIG = 2**63 - 1


def counted(rows: QuerySet[Case]) -> QuerySet[Case]:
    """Those that figures count: of one instance, so that members count for their group, and not merged into another."""
    return rows.exclude(instance=None).exclude(resolution=Resolution.MERGED)


def cases(seen: QuerySet[Case], params: dict[str, str]) -> QuerySet[Case]:
    """Cases among `seen`. A value that no case can have matches nothing; `since` and `until` (the first and the last
    day, UTC), `of` (``counted``) and `but` are left out where bad."""
    rows = seen.filter(_of_state(params.get("state", "")))
    for name, column in (("code", "code"), ("pool", "pool__name"), ("verdict", "verdict")):
        if value := params.get(name):
            rows = rows.filter(**{column: value})
    if value := params.get("type"):
        rows = rows.filter(instance=None) if value == "group" else rows.filter(instance__instance_type=value)
    if value := params.get("codes"):
        rows = rows.filter(codes=value.split(","))
    if value := params.get("end"):
        rows = rows.filter(Q(resolution__in=words.HELPED) if value == HELPED else Q(resolution=value))
    stood = Decision.objects.filter(case=OuterRef("pk"), undone_at=None)
    if value := params.get("done"):
        rows = rows.filter(Exists(stood.filter(action=value, repair__isnull=False)))
    if value := params.get("answer"):
        rows = rows.filter(Exists(stood.filter(kind=value)))
    if at := spans.begin(params.get("since", "")):
        rows = rows.filter(opened_at__gte=at)
    if at := spans.end(params.get("until", "")):
        rows = rows.filter(opened_at__lt=at)
    if params.get("of") == COUNTED:
        rows = counted(rows)
    if (value := params.get("but", "")).isdecimal() and int(value) <= _BIG:
        rows = rows.exclude(pk=int(value))
    for word in params.get("q", "").split()[:5]:
        rows = rows.filter(_search(word))
    return rows


def _of_state(state: str) -> Q:
    """`closed` and `all`; else the open ones, or those of one open state."""
    if state == "all":
        return Q()
    if state == "closed":
        return Q(state=State.CLOSED)
    return Q(state=state) if state in list(State) else ~Q(state=State.CLOSED)


def _search(word: str) -> Q:
    """A case by (part of) its instance's id, a code of its signature, its GPU, its pool, or its number (``#12``)."""
    if word.startswith("#") and word[1:].isdecimal():
        return Q(pk=min(int(word[1:]), _BIG))
    xid = _XID.match(word)
    code = f"XID_{int(xid[1])}" if xid else word.upper()
    named = Q(
        pk__in=Case.objects.annotate(text=Cast("codes", TextField())).filter(text__contains=f'"{code}"').values("pk")
    )
    found = Q(code=code) | named | Q(pool__name__iexact=word)
    if word.lower().startswith("gpu-"):
        return found | Q(gpu__istartswith=word)
    return found if xid else found | Q(instance__instance_id__icontains=word)


def counts(seen: QuerySet[Case], params: dict[str, str]) -> list[tuple[str, str, int]]:
    """(state, its name, cases) of each tab under the other filters, in one query."""
    rows = cases(seen, {**params, "state": "all"})
    found = rows.aggregate(
        all=Count("pk"),
        closed=Count("pk", filter=Q(state=State.CLOSED)),
        open=Count("pk", filter=~Q(state=State.CLOSED)),
    )
    return [(name, title, found[name]) for name, title in TABS.items()]


def before(rows: QuerySet[Case], key: list[Any] | None) -> QuerySet[Case]:
    """Newest first, continued after the last row shown, with what a row shows."""
    if key is not None and isinstance(key[0], int):
        rows = rows.filter(pk__lt=key[0])
    return rows.select_related("account", "instance", "pool").prefetch_related(WITH_ANSWERS).only(*_ROW).order_by("-pk")


def last_answer(case: Case) -> Decision | None:
    """The newest decision that stands: not taken back or called off before it began, and no snooze; of a case that was
    fetched `WITH_ANSWERS`."""
    stood = [
        one for one in case.decisions.all()
        if one.undone_at is None and one.kind != Decision.Kind.SNOOZE
        and not (one.repair and one.repair.state == RepairState.CANCELLED)
    ]  # fmt: skip
    return max(stood, key=lambda one: one.pk) if stood else None


#: columns of an exported row
COLUMNS = (
    "id", "instance", "codes", "verdict", "action", "mode", "state", "resolution", "resolution_note", "account",
    "region", "pool", "type", "title", "why", "why_waiting", "decided", "decided_action", "decided_by",
    "reason", "opened_at", "expires_at", "closed_at", "plan_version", "evidence_hash",
)  # fmt: skip


def as_dict(case: Case) -> dict[str, Any]:
    """A row for CSV and JSON."""
    answer = last_answer(case)
    return {
        "id": case.pk, "instance": case.instance.instance_id if case.instance else "", "codes": " ".join(case.codes),
        "verdict": case.verdict, "action": case.action, "mode": case.mode, "state": case.state,
        "resolution": case.resolution, "resolution_note": case.resolution_note, "account": case.account.account_id,
        "region": case.region, "pool": case.pool.name if case.pool else "",
        "type": case.instance.instance_type if case.instance else "", "title": case.title, "why": case.why,
        "why_waiting": case.why_waiting, "decided": answer.kind if answer else "",
        "decided_action": answer.action if answer else "", "decided_by": answer.actor if answer else "",
        "reason": answer.reason if answer else "", "opened_at": case.opened_at, "expires_at": case.expires_at,
        "closed_at": case.closed_at, "plan_version": case.plan_version, "evidence_hash": case.evidence_hash,
    }  # fmt: skip


def choices(seen: QuerySet[Case]) -> dict[str, list[str]]:
    """Pools and codes that the form offers: of the cases that the person sees."""
    pools = seen.exclude(pool=None).order_by().values_list("pool__name", flat=True).distinct()
    codes = seen.order_by().values_list("code", flat=True).distinct()
    return {"pool": sorted(pools), "code": sorted(codes)}

"""Reads of the record, newest first, by the filters of an address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Q, QuerySet

from healthboard import spans
from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Instance
from healthboard.people import access

FILTERS = ("who", "verb", "instance", "case", "repair", "pool", "since", "until")
_PART = 2_000
#: of a pause of one pool or machine, and of each breaker, the first release kept no place with the row: such a one names
#: what it is about, so that only who sees everything reads it
_OF_SOMEWHERE = Q(verb__startswith="breaker.") | Q(verb__startswith="pause.") & ~Q(summary__startswith="fleet ")


def within(
    user: Any, found: QuerySet[AuditRow], cases: QuerySet, policies: Iterable[int] = ()
) -> QuerySet[AuditRow]:  # fmt: skip
    """The rows that the person may see, by a token no more than in its place: of no place, of a place that a grant
    covers, or of a group case among `cases`, which are those that the person sees. Of policies, whose rows have no
    place either, those that the person sees; they are asked for only where that is not all."""
    places = Q(pk__in=[])
    for grant in access.grants_of(user):
        part = Q()
        if grant.account_id:
            part &= Q(account=grant.account.account_id)
        if grant.region:
            part &= Q(region=grant.region)
        if grant.pool:
            part &= Q(instance__in=Instance.objects.filter(pool__name=grant.pool).values("instance_id"))
        if not part:
            return found
        places |= part
    placeless = Q(account="") & ~_OF_SOMEWHERE & (Q(case_id=None) | Q(case_id__in=cases.values("pk")))
    placeless &= ~Q(verb__startswith="policy.") | Q(subject__in=[f"policy:{pk}" for pk in policies])
    return found.filter(placeless | places)


def rows(
    params: dict[str, str], user: Any, cases: QuerySet, policies: Iterable[int] = ()
) -> QuerySet[AuditRow]:  # fmt: skip
    """As `within`. `who` and `verb` match a part; `pool` is a name: rows of its instances and of its cases, among `cases` that the
    person sees; `since` and `until` are days or minutes (UTC, both included). A bad value is left out."""
    found = within(user, AuditRow.objects.select_related("seal").order_by("-pk"), cases, policies)
    if params.get("who"):
        found = found.filter(actor__icontains=params["who"])
    if params.get("verb"):
        found = found.filter(verb__startswith=params["verb"])
    if params.get("instance"):
        found = found.filter(instance__icontains=params["instance"])
    if params.get("pool"):
        here = Instance.objects.filter(pool__name=params["pool"]).values("instance_id")
        of_pool = cases.filter(pool__name=params["pool"]).values("pk")
        found = found.filter(Q(instance__in=here) | Q(case_id__in=of_pool))
    for name in ("case", "repair"):
        said = params.get(name, "")
        if said.isascii() and said.isdigit() and len(said) < 19:
            found = found.filter(**{f"{name}_id": int(said)})
    if since := spans.begin(params.get("since", "")):
        found = found.filter(at__gte=since)
    if until := spans.end(params.get("until", "")):
        found = found.filter(at__lt=until)
    return found


def each(found: QuerySet[AuditRow]) -> Iterator[AuditRow]:
    """All of them, newest first, read in parts by key: no cursor is held open while a slow reader takes them."""
    rest = found
    while part := list(rest[:_PART]):
        yield from part
        rest = found.filter(pk__lt=part[-1].pk)


def verbs() -> list[str]:
    """First parts of the verbs in use: case, repair, switch …"""
    return sorted(
        {verb.split(".")[0] for verb in AuditRow.objects.order_by().values_list("verb", flat=True).distinct()}
    )


#: of an exported row
COLUMNS = (
    "id", "at", "actor", "via", "verb", "subject", "account", "region", "instance", "case", "repair", "summary",
    "request_id", "payload_hash", "position", "hash",
)  # fmt: skip


def as_dict(row: AuditRow) -> dict[str, Any]:
    """One exported row; `position` and `hash` are null until it is sealed (`rows` reads them along)."""
    seal = getattr(row, "seal", None)
    return {
        "id": row.pk,
        "at": row.at,
        "actor": row.actor,
        "via": row.via,
        "verb": row.verb,
        "subject": row.subject,
        "account": row.account,
        "region": row.region,
        "instance": row.instance,
        "case": row.case_id,
        "repair": row.repair_id,
        "summary": row.summary,
        "request_id": row.request_id,
        "payload_hash": row.payload_hash,
        "position": seal.position if seal else None,
        "hash": seal.hash if seal else None,
    }

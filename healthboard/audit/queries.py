"""Reads of the record, newest first, by the filters of an address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Instance
from healthboard.people.models import Grant

FILTERS = ("who", "verb", "instance", "case", "repair", "since", "until")


def within(user: Any, found: QuerySet[AuditRow]) -> QuerySet[AuditRow]:
    """The rows that the person may see: of no place, or of a place that a grant covers."""
    where = Q(account="")
    for grant in Grant.objects.filter(user=user).select_related("account"):
        part = Q()
        if grant.account_id:
            part &= Q(account=grant.account.account_id)
        if grant.region:
            part &= Q(region=grant.region)
        if grant.pool:
            part &= Q(instance__in=Instance.objects.filter(pool__name=grant.pool).values("instance_id"))
        if not part:
            return found
        where |= part
    return found.filter(where)


def rows(params: dict[str, str], user: Any) -> QuerySet[AuditRow]:
    """`who` and `verb` match a part; `since` and `until` are dates (UTC, both included); a bad value is left out."""
    found = within(user, AuditRow.objects.select_related("seal").order_by("-pk"))
    if params.get("who"):
        found = found.filter(actor__icontains=params["who"])
    if params.get("verb"):
        found = found.filter(verb__startswith=params["verb"])
    if params.get("instance"):
        found = found.filter(instance__icontains=params["instance"])
    for name in ("case", "repair"):
        if params.get(name, "").isdigit():
            found = found.filter(**{f"{name}_id": int(params[name]) % 2**63})
    if since := _date(params.get("since", "")):
        found = found.filter(at__gte=since)
    if until := _date(params.get("until", "")):
        found = found.filter(at__lt=until + timedelta(days=1))
    return found


def _date(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None


def verbs() -> list[str]:
    """First parts of the verbs in use: case, repair, switch …"""
    return sorted(
        {verb.split(".")[0] for verb in AuditRow.objects.order_by().values_list("verb", flat=True).distinct()}
    )


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

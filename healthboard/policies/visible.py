"""The policies that concern a person."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Q, QuerySet

from healthboard.fleet.models import Pool
from healthboard.policies.models import Policy


def visible(see: Callable[..., QuerySet]) -> QuerySet[Policy]:
    """Those that may match what the person sees (`access.seeing`)."""
    rows, every = Policy.objects.all(), Pool.objects.all()
    seen = see(every, pool="name")
    if seen is every:
        return rows
    places = seen.values("account__account_id")
    rows = rows.filter(Q(account="") | Q(account__in=places), Q(pool="") | Q(pool__in=seen.values("name")))
    return rows.filter(Q(region="") | Q(region__in=seen.values("region")))

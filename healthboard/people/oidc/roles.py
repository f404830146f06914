"""Roles from groups, renewed at every log-in: a group that was left takes its role away."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.db import transaction

from healthboard import clock
from healthboard.fleet.models import Account
from healthboard.people import grants
from healthboard.people.actors import system
from healthboard.people.models import Grant
from healthboard.people.oidc.config import Rule

log = logging.getLogger(__name__)
#: groups of one person that are looked at
MOST = 2000


def groups_of(claims: dict[str, Any]) -> frozenset[str]:
    told = claims.get(settings.OIDC.claim)
    rows = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    return frozenset(row for row in rows[:MOST] if isinstance(row, str))


def wanted(groups: frozenset[str]) -> list[Rule]:
    return [rule for rule in settings.OIDC.rules if rule.group in groups]


@transaction.atomic
def renew(user: Any, groups: frozenset[str]) -> None:
    """Give what the groups say and take what they no longer say; what they still say counts from now on anew (see
    `access.counting`). Roles that an admin gave stay as they are."""
    actor = system("oidc")
    accounts = {row.account_id: row for row in Account.objects.all()}
    told = set()
    for rule in wanted(groups):
        if rule.account and rule.account not in accounts:
            log.warning("group %s: account %s is not collected", rule.group, rule.account)
            continue
        told.add((rule.role, accounts[rule.account].pk if rule.account else None, rule.region, rule.pool))
    have = {(g.role, g.account_id, g.region, g.pool): g for g in Grant.objects.select_for_update().filter(user=user)}
    for place, grant in have.items():
        if grant.source == Grant.OIDC and place not in told:
            grants.take(grant, actor=actor, last=True)
    Grant.objects.filter(user=user, source=Grant.OIDC).update(confirmed_at=clock.now())
    for role, account, region, pool in sorted(told - set(have), key=str):
        grant = Grant(user=user, role=role, account_id=account, region=region, pool=pool, source=Grant.OIDC)
        grants.give(grant, actor=actor)

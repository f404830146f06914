"""Who gets a role, or loses it; audited. Who may enter the admin follows from the admin role."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from healthboard.audit.record import record
from healthboard.people import access
from healthboard.people.actors import Actor
from healthboard.people.models import Grant, Role
from healthboard.refusals import Closed


@transaction.atomic
def give(grant: Grant, *, actor: Actor) -> Grant:
    """Save a new or changed grant. Raises NotAllowed outside the actor's own scope."""
    _allow(grant, actor)
    before = Grant.objects.select_related("account", "user").filter(pk=grant.pk).first() if grant.pk else None
    if before is not None:
        _allow(before, actor)
        _keep_one_admin(before, unless=grant)
    grant.save()
    text = f"{grant.user}: {words(grant)}" + (f" instead of {words(before)}" if before else "")
    record("grant.given", f"user:{grant.user_id}", text, actor=actor, payload=_facts(grant))
    for user in {grant.user, *([before.user] if before else [])}:
        sync(user)
    return grant


@transaction.atomic
def take(grant: Grant, *, actor: Actor, last: bool = False) -> None:
    """`last`: even from the last admin, where somebody else is the master of it; `manage.py give-role` is the way back."""
    _allow(grant, actor)
    if not last:
        _keep_one_admin(grant)
    record("grant.taken", f"user:{grant.user_id}", f"{grant.user}: {words(grant)} taken", actor=actor,
           payload=_facts(grant))  # fmt: skip
    user = grant.user
    grant.delete()
    sync(user)


def sync(user: Any) -> None:
    """Only admins enter the admin pages; there they may do what `access` says."""
    staff = Grant.objects.filter(user=user, role=Role.ADMIN).exists()
    if user.is_staff != staff:
        user.is_staff = staff
        user.save(update_fields=["is_staff"])


def words(grant: Grant) -> str:
    scope = [str(part) for part in (grant.account, grant.region, grant.pool) if part]
    return f"{grant.role} for {' '.join(scope) or 'everything'}"


def last_admin(user: Any) -> bool:
    """True if nobody else is left who keeps people."""
    full = _admins()
    return full.filter(user=user).exists() and not full.exclude(user=user).exists()


def has_admin() -> bool:
    """True if somebody keeps people."""
    return _admins().exists()


def _admins() -> QuerySet[Grant]:
    full = Grant.objects.filter(access.counting(), role=Role.ADMIN, account=None, region="", pool="")
    return full.filter(user__is_active=True)


def _keep_one_admin(grant: Grant, unless: Grant | None = None) -> None:
    def full(g: Grant) -> bool:
        return g.role == Role.ADMIN and not g.account_id and not g.region and not g.pool

    if full(grant) and last_admin(grant.user) and not (unless and full(unless) and unless.user_id == grant.user_id):
        raise Closed(f"{grant.user} is the last admin of everything; make another one first.")


def _allow(grant: Grant, actor: Actor) -> None:
    if actor.is_person:
        access.require(actor, "people", account=grant.account, region=grant.region, pool=grant.pool)


def _facts(grant: Grant) -> dict[str, Any]:
    return {
        "user": str(grant.user),
        "role": str(grant.role),
        "account": grant.account.account_id if grant.account else "",
        "region": grant.region,
        "pool": grant.pool,
    }

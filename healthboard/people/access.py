"""Who may do what, where. Asked of the database each time, so that a grant that was taken away counts at once.

A grant covers a place if each part of its scope is empty or equal to the place's. Superusers have what their grants
say and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.db.models import Q, QuerySet

from healthboard.people.actors import Actor
from healthboard.people.models import Grant, Role
from healthboard.refusals import NotAllowed

RECENT_S = 15 * 60

#: verb -> (roles that may, what it is in words)
VERBS: dict[str, tuple[tuple[str, ...], str]] = {
    "view": ((Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN), "see this"),
    "decide": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "decide a case"),
    "undo": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "take a decision back"),
    "by_hand": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "drain or return an instance"),
    "stop": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "throw the stop switch"),
    "terminate_first": ((Role.APPROVER,), "allow termination before the replacement serves"),
    "second": ((Role.APPROVER,), "be the second person"),
    "lift": ((Role.APPROVER, Role.ADMIN), "lift a condemnation"),
    "release": ((Role.ADMIN,), "release a breaker"),
    "resume": ((Role.ADMIN,), "release the stop switch"),
    "policy": ((Role.ADMIN,), "edit policies"),
    "people": ((Role.ADMIN,), "manage people"),
    "pause": ((Role.ADMIN,), "set or end a pause"),
}
#: Verbs that want a log-in not older than 15 minutes.
RECENT = frozenset({"terminate_first", "release", "resume", "policy"})
#: Verbs that, without a place, concern everything, so that a grant in a scope is not enough.
EVERYWHERE = frozenset({"resume", "policy", "people", "pause", "release"})


def why_not(user: Any, verb: str, *, account: Any = None, region: str = "", pool: str = "") -> str | None:
    """None if allowed, else the reason in words.

    `account` is a fleet Account or its number. Without any place: may it be done at all, somewhere (for the verbs of
    `EVERYWHERE`: everywhere).
    """
    return asking(user, verb)(account=account, region=region, pool=pool)


def asking(user: Any, verb: str) -> Callable[..., str | None]:
    """`why_not` for many places at once: the person's grants are read now, and once."""
    grants = _grants(user)

    def of_place(*, account: Any = None, region: str = "", pool: str = "") -> str | None:
        return _why_not(user, verb, grants, _number(account), region, pool)

    return of_place


def each(user: Any, verbs: Iterable[str]) -> dict[str, str | None]:
    """`why_not` without a place for several verbs, the grants read once."""
    grants = _grants(user)
    return {verb: _why_not(user, verb, grants, "", "", "") for verb in verbs}


def _grants(user: Any) -> list[Grant]:
    if user is None or not user.is_authenticated or not user.is_active:
        return []
    return list(Grant.objects.filter(user=user).select_related("account"))


def _why_not(user: Any, verb: str, grants: list[Grant], number: str, region: str, pool: str) -> str | None:
    roles, words = VERBS[verb]
    if user is None or not user.is_authenticated:
        return "Log in first."
    if not user.is_active:
        return "This log-in is switched off."
    if not grants:
        return f"{user} has no role yet; an admin gives one."
    mine = [g for g in grants if g.role in roles]
    if not mine:
        have = ", ".join(sorted({str(g.role) for g in grants}))
        return f"To {words} takes the role {_either(roles)}; {user} is {have}."
    if not number and not region and not pool and verb not in EVERYWHERE:
        return None
    if any(_covers(g, number, region, pool) for g in mine):
        return None
    where = f"pool {pool}" if pool else " ".join(p for p in (number, region) if p) or "everything"
    return f"{user} may {words} elsewhere, but not for {where}."


def somewhere(user: Any, verb: str) -> bool:
    """True if the person may do it in at least some place."""
    roles, _ = VERBS[verb]
    return bool(
        user is not None
        and user.is_authenticated
        and user.is_active
        and Grant.objects.filter(user=user, role__in=roles).exists()
    )


def in_group(user: Any, group: str) -> bool:
    """True if the person is a member of the group that a policy wants approvals from; an empty name is everybody."""
    return not group or user.groups.filter(name=group).exists()


def require(actor: Actor, verb: str, *, account: Any = None, region: str = "", pool: str = "") -> None:
    """Raise NotAllowed unless the person may, with a log-in recent enough where the verb wants it."""
    if not actor.is_person:
        raise NotAllowed("Only a person may do this.")
    if reason := why_not(actor.user, verb, account=account, region=region, pool=pool):
        raise NotAllowed(reason)
    if verb in RECENT and not actor.recent:
        raise NotAllowed("Log in again first: this needs a log-in not older than 15 minutes.", again=True)


def within(
    user: Any, queryset: QuerySet, *, prefix: str = "", verb: str = "view", pool: str = "pool__name"
) -> QuerySet:
    """The rows of a queryset that the person may see. `prefix` leads to the row that has account, region and pool
    (``""`` for instances and cases, ``"instance__"`` for repairs). `pool` leads to the pool's name; empty for rows of
    a whole place, which a grant for one pool of it shows too."""
    return seeing(user, verb)(queryset, prefix=prefix, pool=pool)


def seeing(user: Any, verb: str = "view") -> Callable[..., QuerySet]:
    """`within` for many querysets: the person's grants are read now, and once."""
    roles, _ = VERBS[verb]
    grants = [grant for grant in _grants(user) if grant.role in roles]

    def of_rows(queryset: QuerySet, *, prefix: str = "", pool: str = "pool__name") -> QuerySet:
        where = Q(pk__in=[])
        for grant in grants:
            part = Q()
            if grant.account_id:
                part &= Q(**{f"{prefix}account": grant.account_id})
            if grant.region:
                part &= Q(**{f"{prefix}region": grant.region})
            if grant.pool and pool:
                part &= Q(**{f"{prefix}{pool}": grant.pool})
            if not part:
                return queryset
            where |= part
        return queryset.filter(where) if grants else queryset.none()

    return of_rows


def scope(user: Any, verb: str = "view") -> tuple[Any, ...]:
    """What `within` shows a person, as a value: two people with the same one see the same rows."""
    if user is None or not user.is_authenticated or not user.is_active:
        return ()
    grants = Grant.objects.filter(user=user, role__in=VERBS[verb][0])
    return tuple(sorted(set(grants.values_list("account_id", "region", "pool")), key=str))


def _covers(grant: Grant, number: str, region: str, pool: str) -> bool:
    if grant.account_id and grant.account.account_id != number:
        return False
    return grant.region in ("", region) and grant.pool in ("", pool)


def _number(account: Any) -> str:
    return str(getattr(account, "account_id", account) or "")


def _either(roles: tuple[str, ...]) -> str:
    return " or ".join(str(r) for r in roles if r != Role.ADMIN or len(roles) == 1)

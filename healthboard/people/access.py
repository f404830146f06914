"""Who may do what, where. Asked of the database each time, so that a grant that was taken away counts at once.

A grant covers a place if each part of its scope is empty or equal to the place's. Superusers have what their grants
say and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from healthboard import clock
from healthboard.people.actors import Actor
from healthboard.people.models import ApiToken, Grant, Role
from healthboard.refusals import NotAllowed
from healthboard.words import listing

RECENT_S = 15 * 60
AGAIN = "Log in again first: this needs a log-in not older than 15 minutes."
BY_TOKEN = (
    "This needs a person's log-in not older than 15 minutes, and a token proves nobody's presence: a person does it on "
    "the pages, or through the API in the session of their log-in."
)

#: verb -> (roles that may, what it is in words)
VERBS: dict[str, tuple[tuple[str, ...], str]] = {
    "view": ((Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN), "see this"),
    "decide": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "decide a case"),
    "undo": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "take a decision back"),
    "by_hand": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "drain or return an instance"),
    "stop": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "throw the stop switch"),
    "terminate_first": ((Role.APPROVER,), "allow termination before the replacement serves"),
    "over_budget": ((Role.OPERATOR, Role.APPROVER, Role.ADMIN), "let a repair start over the budget"),
    "second": ((Role.APPROVER,), "be the second person"),
    "lift": ((Role.APPROVER, Role.ADMIN), "lift a condemnation"),
    "release": ((Role.ADMIN,), "release a breaker"),
    "resume": ((Role.ADMIN,), "release the stop switch"),
    "policy": ((Role.ADMIN,), "edit policies"),
    "people": ((Role.ADMIN,), "manage people"),
    "pause": ((Role.ADMIN,), "set or end a pause"),
}
#: What a token of that scope may be used for; ``all`` is whatever its user may.
SCOPES: dict[str, frozenset[str]] = {
    "read": frozenset({"view"}),
    "decide": frozenset({"view", "decide", "undo", "by_hand", "stop", "lift"}),
    "policies": frozenset({"view", "policy"}),  # to export, check and try them: saving takes a person
    "all": frozenset(VERBS),
}
#: Verbs that want a log-in not older than 15 minutes. ``people``, since who makes log-ins, passwords and tokens would else
#: make the fresh log-in that the others want; see docs/decisions/0103-people-want-a-fresh-log-in.md
RECENT = frozenset({"terminate_first", "over_budget", "release", "resume", "policy", "people"})
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
    grants = grants_of(user)

    def of_place(*, account: Any = None, region: str = "", pool: str = "") -> str | None:
        return _why_not(user, verb, grants, _number(account), region, pool)

    return of_place


def each(user: Any, verbs: Iterable[str]) -> dict[str, str | None]:
    """`why_not` without a place for several verbs, the grants read once."""
    grants = grants_of(user)
    return {verb: _why_not(user, verb, grants, "", "", "") for verb in verbs}


def read_once(user: Any) -> None:
    """For a request that only reads: from now on this object's grants are read once. What acts asks the database anew."""
    user.grants_kept = grants_of(user)


def grants_of(user: Any) -> list[Grant]:
    """A person's grants; through a token, the part of them that lies in its place."""
    if user is None or not user.is_authenticated or not user.is_active:
        return []
    if (kept := getattr(user, "grants_kept", None)) is not None:
        return kept
    grants = list(Grant.objects.filter(counting(), user=user).select_related("account"))
    token = getattr(user, "api_token", None)
    return grants if token is None else [one for grant in grants if (one := _within_token(grant, token)) is not None]


def counting() -> Q:
    """Grants that count now: what a provider's group gave does for so many days after it last said so. Whoever has left
    logs in there no more, but may still have a token, or a session."""
    return ~Q(source=Grant.OIDC) | Q(confirmed_at__gt=clock.now() - timedelta(days=settings.OIDC_DAYS))


def _within_token(grant: Grant, token: ApiToken) -> Grant | None:
    """What a grant and a token's place have in common, unsaved; None where that is nothing."""
    both = (grant.account, token.account), (grant.region, token.region), (grant.pool, token.pool)
    if any(one and other and one != other for one, other in both):
        return None
    account, region, pool = (one or other for one, other in both)
    return Grant(user_id=grant.user_id, role=grant.role, account=account, region=region, pool=pool)


def token_why_not(user: Any, verb: str) -> str | None:
    """Why the token that was shown may not be used for it, whatever its user may; None without a token."""
    token = getattr(user, "api_token", None)
    if token is None or token.scope == "all" or verb in SCOPES.get(token.scope, ()):
        return None
    return f"To {VERBS[verb][1]} takes a token of another scope; this one's is {token.scope}."


def _why_not(user: Any, verb: str, grants: list[Grant], number: str, region: str, pool: str) -> str | None:
    roles, words = VERBS[verb]
    if user is None or not user.is_authenticated:
        return "Log in first."
    if not user.is_active:
        return "This log-in is switched off."
    if why := token_why_not(user, verb):
        return why
    if not grants:
        if Grant.objects.filter(~counting(), user=user).exists():
            return f"{user}'s last log-in by single sign-on is too long ago: log in there again."
        return f"The log-in {user} has no role yet; an admin gives one."
    mine = [g for g in grants if g.role in roles]
    if not mine:
        have = sorted({str(g.role) for g in grants})
        has = f"the {'role' if len(have) == 1 else 'roles'} {listing(have, most=len(have))}"
        return f"To {words} takes the role {_either(roles)}; the log-in {user} has {has}."
    if not number and not region and not pool and verb not in EVERYWHERE:
        return None
    if any(_covers(g, number, region, pool) for g in mine):
        return None
    where = f"pool {pool}" if pool else " ".join(p for p in (number, region) if p) or "everything"
    return f"The log-in {user} may {words} elsewhere, but not for {where}."


def somewhere(user: Any, verb: str) -> bool:
    """True if the person may do it in at least some place."""
    roles, _ = VERBS[verb]
    return any(grant.role in roles for grant in grants_of(user)) and token_why_not(user, verb) is None


def in_group(user: Any, group: str) -> bool:
    """True if the person is a member of the group that a policy wants approvals from; an empty name is everybody."""
    return not group or user.groups.filter(name=group).exists()


def require(actor: Actor, verb: str, *, account: Any = None, region: str = "", pool: str = "") -> None:
    """Raise NotAllowed unless the person may, with a log-in recent enough where the verb wants it."""
    if not actor.is_person:
        raise NotAllowed("Only a person may do this.")
    if reason := why_not(actor.user, verb, account=account, region=region, pool=pool):
        raise NotAllowed(reason)
    _require_recent(actor, verb)


def require_somewhere(actor: Actor, verb: str) -> None:
    """`require` before it is known for which places: raise NotAllowed unless the person may in at least one."""
    if not actor.is_person:
        raise NotAllowed("Only a person may do this.")
    if not somewhere(actor.user, verb):
        raise NotAllowed(why_not(actor.user, verb) or f"{actor.user} may not {VERBS[verb][1]}.")
    _require_recent(actor, verb)


def _require_recent(actor: Actor, verb: str) -> None:
    if verb in RECENT and not actor.recent:
        raise again(actor)


def again(actor: Actor) -> NotAllowed:
    """The refusal of a log-in that is too old, or of a token, which is none."""
    return NotAllowed(AGAIN if actor.token is None else BY_TOKEN, again=True)


def given(user: Any, name: str, verb: str, token_id: int | None = None, group: str = "") -> dict[str, Any]:
    """A person's word as it is kept with what rests on it; see `withdrawn`."""
    return {"user": user.pk if user else None, "name": name, "verb": verb, "token": token_id, "group": group}


def withdrawn(words: Iterable[dict[str, Any]], *, account: Any = None, region: str = "", pool: str = "") -> str | None:
    """None while everybody who gave their word could still give it; else who could not any more, and why."""
    for word in words:
        name = word["name"]
        user = get_user_model().objects.filter(pk=word["user"]).first()
        if user is None:
            return f"{name}, whose word this rests on, is no user any more."
        if why := why_not(user, word["verb"], account=account, region=region, pool=pool):
            return f"{name}, whose word this rests on, may not give it any more: {why}"
        if not in_group(user, word.get("group", "")):
            return f"{name}, whose word this rests on, is no longer in the group {word['group']}."
        if word.get("token") and not ApiToken.objects.filter(live(clock.now()), pk=word["token"]).exists():
            return f"The token by which {name} gave their word has expired or was revoked."
    return None


def live(now: Any) -> Q:
    """Tokens that count at that time."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


def lives(token: Any, now: Any) -> bool:
    """The same of a token that was read already."""
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


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
    grants = [grant for grant in grants_of(user) if grant.role in roles and token_why_not(user, verb) is None]

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
    grants = [grant for grant in grants_of(user) if grant.role in VERBS[verb][0]]
    return tuple(sorted({(grant.account_id, grant.region, grant.pool) for grant in grants}, key=str))


def _covers(grant: Grant, number: str, region: str, pool: str) -> bool:
    if grant.account_id and grant.account.account_id != number:
        return False
    return grant.region in ("", region) and grant.pool in ("", pool)


def _number(account: Any) -> str:
    return str(getattr(account, "account_id", account) or "")


def _either(roles: tuple[str, ...]) -> str:
    return " or ".join(str(r) for r in roles if r != Role.ADMIN or len(roles) == 1)

"""Saved views: a list's query string under a name, private or shared. A person, a pool, or everybody may have a default."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import QueryDict

from healthboard import clock
from healthboard.audit.record import record
from healthboard.people import access
from healthboard.people.actors import Actor
from healthboard.people.models import SavedView
from healthboard.refusals import Changed, Invalid, NotAllowed, NotFound

#: views of one person, so that nobody fills the table
MOST = 100


def of(user: Any, page: str) -> list[SavedView]:
    """The views that a person may open on a page: shared ones and their own, by name."""
    rows = SavedView.objects.filter(Q(shared=True) | Q(user=user), page=page).select_related("user")
    return list(rows.order_by("name", "pk"))


def default(views: list[SavedView], user: Any) -> SavedView | None:
    """Of the views that a person may open on a page, the one that they get who ask for it without saying what to show:
    their own, else that of one of their pools, else everybody's."""
    if own := next((view for view in views if view.own_default and view.user_id == user.pk), None):
        return own
    pools = {"", *(grant.pool for grant in access.grants_of(user))}
    found = [view for view in views if view.default and view.pool in pools]
    return max(found, key=lambda view: (view.pool, -view.pk), default=None)


def clean(query: str, names: tuple[str, ...]) -> str:
    """The parts of a query string that are a page's own parameters, in its own order of writing."""
    given = QueryDict(query.replace("\0", "").removeprefix("?"))
    kept = QueryDict(mutable=True)
    for name in names:
        if values := [value for value in given.getlist(name) if value]:
            kept.setlist(name, values)
    return kept.urlencode()


@transaction.atomic
def save(
    *, actor: Actor, page: str, name: str, query: str, shared: bool = False, default: bool = False, pool: str = "",
    own_default: bool = False,
) -> SavedView:  # fmt: skip
    """Keep a view, over an own one of the same name. A default is shared, and takes the place of the one before; an own
    default is what its owner alone starts with. Raises Invalid, NotAllowed, Changed."""
    name = name.replace("\0", "").strip()
    if not name or len(name) > 60:
        raise Invalid("Give the view a name of at most 60 characters.")
    if len(query) > 2000:
        raise Invalid("This view has too many filters to be kept.")
    shared = shared or default
    if default and not pool:
        if why := access.why_not(actor.user, "people"):  # how a list looks to others gives nobody a right
            raise NotAllowed(why)
    elif shared:
        access.require(actor, "decide", pool=pool)
    own = SavedView.objects.filter(user=actor.user, page=page)
    if own.exclude(name=name).count() >= MOST:
        raise Invalid(f"You keep {MOST} views already; remove one first.")
    if default:
        SavedView.objects.filter(page=page, pool=pool, default=True).update(default=False)
    if own_default:
        own.update(own_default=False)
    values: dict[str, Any] = {
        "own_default": own_default,
        "query": query,
        "shared": shared,
        "default": default,
        "pool": pool if default else "",
    }
    values |= {"saved_at": clock.now()}
    try:
        with transaction.atomic():
            row, _ = own.update_or_create(name=name, user=actor.user, page=page, defaults=values)
    except IntegrityError:
        raise Changed("Somebody set this default at the same moment; look at theirs first.") from None
    if shared:
        what = f"the default of {pool or 'everybody'}" if default else "shared"
        record("view.saved", f"view {row.pk}", f"{page} view {name} saved, {what}: {query}", actor=actor)
    return row


@transaction.atomic
def remove(pk: int, *, actor: Actor) -> SavedView:
    """Take away one's own view; an admin may take away a shared one. Raises NotFound, NotAllowed."""
    row = SavedView.objects.filter(Q(shared=True) | Q(user=actor.user), pk=pk).first()
    if row is None:
        raise NotFound("There is no such view.")
    if row.user_id != actor.user.pk and (why := access.why_not(actor.user, "people")):
        raise NotAllowed(f"It is {row.user or 'nobody'}'s view. {why}")
    row.delete()
    if row.shared:
        record("view.removed", f"view {pk}", f"{row.page} view {row.name} removed", actor=actor)
    return row

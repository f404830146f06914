"""Bearer tokens of people, services and nodes. Only the SHA-256 of 256 random bits is kept; every use is looked up,
so that a revoked or expired token is refused at once."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from healthboard import clock
from healthboard.audit.record import record
from healthboard.fleet.models import Instance
from healthboard.people.actors import Actor
from healthboard.people.models import ApiToken, NodeToken

API_PREFIX, NODE_PREFIX = "hba_", "hbn_"
#: A node keeps at most so many live tokens; issuing one more revokes the oldest.
NODE_TOKENS = 5
#: and those that ended are forgotten after so long
ENDED_KEPT = timedelta(days=30)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _new(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(32)


@transaction.atomic
def issue_api(user: Any, *, actor: Actor, days: float | None = None) -> str:
    """A new token of a person or service; it is shown once. `days` None: it never expires."""
    token, now = _new(API_PREFIX), clock.now()
    row = ApiToken.objects.create(
        user=user,
        hash=_hash(token),
        created_at=now,
        created_by=actor.name[:150],
        expires_at=now + timedelta(days=days) if days else None,
    )
    record("token.issued", f"token:{row.pk}", f"API token for {user}", actor=actor, payload={"user": str(user)})
    return token


def verify_api(token: str) -> Any | None:
    """The active user whom a live token belongs to, or None."""
    now = clock.now()
    row = ApiToken.objects.select_related("user").filter(live(now), hash=_hash(token)).first()
    if row is None or not row.user.is_active:
        return None
    if row.used_at is None or now - row.used_at > timedelta(minutes=1):  # not a write per request
        ApiToken.objects.filter(pk=row.pk).update(used_at=now)
    return row.user


@transaction.atomic
def revoke_api(row: ApiToken, *, actor: Actor) -> None:
    if ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=clock.now()):
        record("token.revoked", f"token:{row.pk}", f"API token of {row.user} revoked", actor=actor)


@transaction.atomic
def issue_node(
    instance: Instance, *, actor: Actor, lives: timedelta | None = None, enrolled: bool = False, quiet: bool = False
) -> str:
    """A new credential of one node; earlier ones stay valid, so that a node can change over.

    `lives` None: it never expires. `enrolled`: the machine itself got it. `quiet`: a renewal, which no audit row tells.
    """
    token, now = _new(NODE_PREFIX), clock.now()
    known = NodeToken.objects.filter(live(now), instance=instance).order_by("-created_at", "-pk")
    old = list(known.values_list("pk", flat=True)[NODE_TOKENS - 1 :])
    NodeToken.objects.filter(pk__in=old).update(revoked_at=now)
    NodeToken.objects.filter(instance=instance, expires_at__lt=now - ENDED_KEPT).delete()
    row = NodeToken.objects.create(
        instance=instance,
        hash=_hash(token),
        created_at=now,
        created_by=actor.name[:150],
        expires_at=now + lives if lives else None,
        enrolled=enrolled,
    )
    if not quiet:
        record("token.issued", f"node-token:{row.pk}", f"node token for {instance}", actor=actor, instance=instance)
    return token


def verify_node(token: str) -> Instance | None:
    """The instance that a live node token stands for, or None."""
    row = of_node(token)
    return row.instance if row else None


def of_node(token: str) -> NodeToken | None:
    """The live node token, with its instance, or None."""
    rows = NodeToken.objects.select_related("instance__account", "instance__pool", "instance__cluster")
    return rows.filter(live(clock.now()), hash=_hash(token)).first()


def standing(instance: Instance) -> NodeToken | None:
    """The newest live credential of a node."""
    return NodeToken.objects.filter(live(clock.now()), instance=instance).order_by("-created_at", "-pk").first()


@transaction.atomic
def revoke_node(row: NodeToken, *, actor: Actor) -> None:
    if NodeToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=clock.now()):
        text = f"node token of {row.instance} revoked"
        record("token.revoked", f"node-token:{row.pk}", text, actor=actor, instance=row.instance)


def live(now: Any) -> Q:
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))

"""Bearer tokens of people, services and nodes. Only the SHA-256 of 256 random bits is kept; every use is looked up,
so that a revoked or expired token is refused at once."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import transaction
from django.db.models import Q

from healthboard import clock
from healthboard.audit.record import record
from healthboard.fleet.models import Instance
from healthboard.people import credential, limits
from healthboard.people.access import SCOPES, live, lives
from healthboard.people.actors import Actor
from healthboard.people.models import ApiToken, NodeToken, ServiceAccount
from healthboard.refusals import Invalid

STRANGER = Actor(name="anonymous", via="api")
#: the longest life of a token that has an end
MOST_DAYS = 3650
API_PREFIX, NODE_PREFIX = "hba_", "hbn_"
#: A node keeps at most so many live tokens; issuing one more revokes the oldest.
NODE_TOKENS = 5
#: once a renewed token was shown, those before it are good for so long
OVERLAP = timedelta(minutes=10)
#: a machine may be told as gone by mistake for a moment; after so long its credential is none any more
GONE_FOR = timedelta(hours=1)
#: and those that ended are forgotten after so long
ENDED_KEPT = timedelta(days=30)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _new(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(32)


@transaction.atomic
def issue_api(
    user: Any, *, actor: Actor, days: float | None = None, name: str = "", scope: str = "all", account: Any = None,
    region: str = "", pool: str = "",
) -> str:  # fmt: skip
    """A new token of a person or service; it is shown once. `days` None: it never expires. `scope`: of `access.SCOPES`;
    account, region and pool: where it counts, empty for everywhere that its user's roles do. Raises Invalid."""
    if scope not in SCOPES:
        raise Invalid(f"A token's scope is one of: {', '.join(SCOPES)}.")
    if days is not None and not 0 < days <= MOST_DAYS:
        raise Invalid(f"A token expires after more than 0 and at most {MOST_DAYS} days.")
    token, now = _new(API_PREFIX), clock.now()
    row = ApiToken.objects.create(
        user=user,
        name=name.strip()[:60],
        scope=scope,
        account=account,
        region=region,
        pool=pool,
        hash=_hash(token),
        created_at=now,
        created_by=actor.name[:150],
        expires_at=now + timedelta(days=days) if days else None,
    )
    place = " ".join(str(part) for part in (account, region, pool) if part)
    text = f"API token {row.name or row.pk} for {user}: {scope}{' in ' + place if place else ''}"
    record("token.issued", f"token:{row.pk}", text, actor=actor, payload={"user": str(user), "scope": scope})
    return token


def verify_api(token: str) -> Any | None:
    """The active user whom a live token belongs to, or None. What they may through it is in ``user.api_token``."""
    now = clock.now()
    row = ApiToken.objects.select_related("user", "account").filter(live(now), hash=_hash(token)).first()
    if row is None or not row.user.is_active:
        return None
    if row.used_at is None or now - row.used_at > timedelta(minutes=1):  # not a write per request
        ApiToken.objects.filter(pk=row.pk).update(used_at=now)
    row.user.api_token = row
    return row.user


def refused_api(token: str, address: str) -> None:
    """A token that counts no more, or never did, was shown: on record once in a quarter of an hour for each and place, and
    so many times from all places together: an address costs a stranger nothing."""
    row = ApiToken.objects.select_related("user").filter(hash=_hash(token)).first()
    about = f"token:{row.pk}" if row else "token:unknown"
    if not cache.add(f"refused:{about}:{limits.line_of(address)}", 1, 900):
        return
    cache.add(f"refused:{about}", 0, 900)
    if cache.incr(f"refused:{about}") > limits.PER_ADDRESS:
        return
    whose = (
        f"of {row.user}, which has expired or was revoked, or whose user is switched off"
        if row
        else "that nobody was given"
    )
    with transaction.atomic():
        record("token.refused", about, f"a token {whose} was shown from {address}", actor=STRANGER)


@transaction.atomic
def make_service(name: str, purpose: str, *, actor: Actor) -> Any:
    """A user that is a program, without a password or a role; there is no log-in for it. Raises Invalid."""
    name = name.strip()
    if not re.fullmatch(r"[\w.@+-]{1,150}", name):
        raise Invalid("A service account's name has letters, digits and .@+-_ only.")
    if get_user_model().objects.filter(username__iexact=name).exists():
        raise Invalid(f"There is a user {name} already.")
    user = get_user_model()(username=name)
    user.set_unusable_password()
    user.save()
    ServiceAccount.objects.create(
        user=user, purpose=purpose.strip()[:255], made_at=clock.now(), made_by=actor.name[:150]
    )
    record("service.made", f"user:{user.pk}", f"service account {name}: {purpose.strip()[:200]}", actor=actor)
    return user


@transaction.atomic
def revoke_api(row: ApiToken, *, actor: Actor) -> None:
    if ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=clock.now()):
        record("token.revoked", f"token:{row.pk}", f"API token of {row.user} revoked", actor=actor)


@transaction.atomic
def issue_node(
    instance: Instance, *, actor: Actor, lives: timedelta | None = None, enrolled: bool = False, quiet: bool = False,
    keep: NodeToken | None = None,
) -> str:  # fmt: skip
    """A new credential of one node; earlier ones stay valid, so that a node can change over.

    `lives` None: it never expires. `enrolled`: the machine itself got it. `quiet`: a renewal, which no audit row tells.
    `keep`: what the node has for certain, and is not revoked for this one.
    """
    token, now = _new(NODE_PREFIX), clock.now()
    known = NodeToken.objects.filter(live(now), instance=instance).order_by("-created_at", "-pk")
    old = list(known.exclude(pk=keep and keep.pk).values_list("pk", flat=True)[NODE_TOKENS - (2 if keep else 1) :])
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
    """The live node token, with its instance, or None. One of a machine that is long gone stands for nobody.

    ``asked`` of it: whether anything is asked of the node that it has not answered.
    """
    now = clock.now()
    row = credential.by_hash(_hash(token), now)
    if row is None or not lives(row, now):
        return None
    if row.instance.gone_at is not None and row.instance.gone_at <= now - GONE_FOR:
        return None
    if row.used_at is None:
        _arrived(row, now)
    return row


@transaction.atomic
def _arrived(row: NodeToken, now: datetime) -> None:
    """Its first use: the node has it, and needs those that it had before no more."""
    if NodeToken.objects.filter(pk=row.pk, used_at=None).update(used_at=now) and row.enrolled:
        before = NodeToken.objects.filter(live(now), instance=row.instance_id, enrolled=True, pk__lt=row.pk)
        before.filter(Q(expires_at=None) | Q(expires_at__gt=now + OVERLAP)).update(expires_at=now + OVERLAP)


def standing(instance: Instance) -> NodeToken | None:
    """The newest live credential of a node."""
    return NodeToken.objects.filter(live(clock.now()), instance=instance).order_by("-created_at", "-pk").first()


@transaction.atomic
def revoke_node(row: NodeToken, *, actor: Actor) -> None:
    if NodeToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=clock.now()):
        text = f"node token of {row.instance} revoked"
        record("token.revoked", f"node-token:{row.pk}", text, actor=actor, instance=row.instance)

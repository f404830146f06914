"""How a machine becomes a node: a nonce, a proof of who it is, and then a token that it renews.

Trust on first use: an enrolled machine keeps its place by renewing. Whoever else gets hold of its metadata (a task on
it, say) is refused as long as its token lives; a machine that lost its state waits until then, or until somebody runs
`node-token --forget`. A token that was never shown has reached nobody: its answer was lost.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta

from django.core import signing
from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from healthboard import aws, clock
from healthboard.fleet.models import Instance
from healthboard.people import identity, tokens
from healthboard.people.actors import Actor, system
from healthboard.people.models import NodeToken, SpentNonce

NONCE_LIVES = timedelta(minutes=5)
TOKEN_LIVES = timedelta(hours=24)
#: an answer that has not led to a first use by then was lost
ARRIVES = timedelta(seconds=60)
NODE = system("enrolment")


class NotEnrolled(Exception):
    """`reason` is a short name for counting, `status` that of the answer; the message says what to do."""

    def __init__(self, status: int, reason: str, text: str, instance: Instance | None = None) -> None:
        super().__init__(text)
        self.status, self.reason, self.instance = status, reason, instance


def challenge() -> str:
    """A nonce of this installation, good for one answer within five minutes. Nothing is stored until it is answered."""
    return _signer().sign(f"{int(clock.now().timestamp())}.{secrets.token_urlsafe(24)}")


def enrol(instance_id: str, proof: identity.Proof) -> tuple[str, timedelta]:
    """(token, how long it lives). Raises NotEnrolled."""
    if not identity.server_name():
        raise NotEnrolled(
            404,
            "enrolment off",
            "set HEALTHBOARD_URL on the server, or give this node a token by `manage.py node-token`",
        )
    _check_nonce(proof.nonce)
    try:
        identity.check(proof)
    except identity.NotProven as no:
        raise NotEnrolled(403, "proof refused", str(no)) from None
    found = _known(instance_id, proof.region)  # before STS is asked: only machines that we collected may make us ask
    _spend(proof.nonce)
    try:
        account, told = identity.caller(proof)
    except identity.NotProven as no:
        raise NotEnrolled(403, "proof refused", str(no)) from None
    except identity.Away as away:
        raise NotEnrolled(503, "STS away", f"{away}: ask for a new challenge in a while") from None
    row = next((row for row in found if row.account.account_id == account), None)
    if told != instance_id or row is None:
        raise NotEnrolled(403, "not this machine", f"the proof is that of {told} in account {account}")
    return _first(row, account), TOKEN_LIVES


def renew(row: NodeToken, *, now: datetime) -> tuple[str, timedelta]:
    """A token in the place of this one, which goes on being good until that one is shown: its answer may be lost. What
    was given in its place before and never shown is revoked. Raises NotEnrolled for a token that no enrolment gave."""
    if not row.enrolled:
        raise NotEnrolled(409, "not enrolled", "this token was given by a person and is not renewed", row.instance)
    with transaction.atomic():
        _lost(row.instance, now).filter(pk__gt=row.pk).update(revoked_at=now)
        token = tokens.issue_node(row.instance, actor=NODE, lives=TOKEN_LIVES, enrolled=True, quiet=True, keep=row)
    return token, TOKEN_LIVES


def _lost(instance: Instance, now: datetime) -> QuerySet[NodeToken]:
    """What nobody can have received: of its answers a reporter waits for some seconds."""
    rows = NodeToken.objects.filter(tokens.live(now), instance=instance, enrolled=True)
    return rows.filter(used_at=None, created_at__lt=now - ARRIVES)


@transaction.atomic
def forget(instance: Instance, *, actor: Actor) -> int:
    """Revoke every live token of a node, so that it can enrol anew. The number of them."""
    rows = NodeToken.objects.select_related("instance__account").filter(tokens.live(clock.now()), instance=instance)
    for row in rows:
        tokens.revoke_node(row, actor=actor)
    return len(rows)


def _signer() -> signing.Signer:
    return signing.Signer(salt="healthboard.node.enrol", sep="~")


def _check_nonce(nonce: str) -> None:
    try:
        at = int(_signer().unsign(nonce).partition(".")[0])
    except (signing.BadSignature, ValueError):
        raise NotEnrolled(403, "unknown nonce", "answer a challenge of this server") from None
    age = clock.now().timestamp() - at
    if not -5 <= age <= NONCE_LIVES.total_seconds():
        raise NotEnrolled(403, "old nonce", f"the challenge is {age:.0f} s old: ask for a new one")


def _spend(nonce: str) -> None:
    now = clock.now()
    SpentNonce.objects.filter(at__lt=now - 2 * NONCE_LIVES).delete()
    try:
        with transaction.atomic():
            SpentNonce.objects.create(hash=hashlib.sha256(nonce.encode()).hexdigest(), at=now)
    except IntegrityError:
        raise NotEnrolled(403, "used nonce", "this challenge was answered before: ask for a new one") from None


def _known(instance_id: str, region: str) -> list[Instance]:
    """As DescribeInstances told it: alive, and in an account of ours. Mostly one; ids are not unique by contract."""
    accounts = {entry.account for entry in aws.accounts()}
    rows = Instance.objects.select_related("account").filter(
        instance_id=instance_id, region=region, account__account_id__in=accounts, gone_at=None
    )
    found = [row for row in rows if row.state in ("pending", "running")]
    if not found:
        raise NotEnrolled(404, "unknown instance", f"{instance_id} is not known as running here: ask again in a minute")
    return found


def _first(row: Instance, account: str) -> str:
    with transaction.atomic():
        locked = Instance.objects.select_for_update(of=("self",)).select_related("account").get(pk=row.pk)
        _lost(locked, clock.now()).update(revoked_at=clock.now())
        if NodeToken.objects.filter(tokens.live(clock.now()), instance=locked, enrolled=True).exists():
            raise NotEnrolled(
                409,
                "enrolled already",
                f"{locked.instance_id} has a live credential of its enrolment; if its reporter has lost it, run "
                f"`manage.py node-token --forget {locked.instance_id}`",
                locked,
            )
        return tokens.issue_node(locked, actor=NODE, lives=TOKEN_LIVES, enrolled=True)

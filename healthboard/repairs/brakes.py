"""What stops repairs: the switch, breakers and pauses. The only writer of those rows; each change is audited."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from healthboard import clock
from healthboard.audit.record import record
from healthboard.fleet.models import Account, Instance
from healthboard.fleet.sources import watch_anew
from healthboard.notices.outbox import announce, follow
from healthboard.people.access import again, why_not
from healthboard.people.actors import Actor
from healthboard.refusals import Closed, Invalid, NotAllowed, NotFound
from healthboard.repairs.models import Breaker, Pause, Switch


def switch(*, lock: bool = False) -> Switch:
    """The one row; locked inside a transaction, a step's intent and a thrown switch take turns."""
    rows = Switch.objects.select_for_update() if lock else Switch.objects
    found = rows.order_by("pk").first()
    if found is None:
        found = Switch.objects.create(changed_at=clock.now(), changed_by="healthboard", reason="first start")
    return found


@transaction.atomic
def stop(actor: Actor, reason: str) -> None:
    """Throw the stop switch: no intent is committed after this transaction."""
    _allow(actor, "stop")
    if not reason.strip():
        raise Invalid("Say why everything is to stop.")
    was = switch(lock=True).stopped
    at = _flip(actor, reason, verb="switch.stopped", summary="stop switch thrown", stopped=True)
    if not was:
        announce(key=f"stopped-{at.isoformat()}", kind="stopped", body=reason, link="/system/#switch", thread="stop",
                 subject=f"{actor.name} has thrown the stop switch: no repair takes another step")  # fmt: skip


def stop_by_itself(actor: Actor, reason: str) -> None:
    """The system throws the switch, for what only a person can judge; a person releases it like any other. Its caller
    tells people."""
    _flip(actor, reason, verb="switch.stopped", summary="stop switch thrown", stopped=True)


@transaction.atomic
def resume(actor: Actor, reason: str) -> None:
    _allow(actor, "resume")
    at = _flip(actor, reason, verb="switch.resumed", summary="stop switch released", stopped=False)
    follow("stop", key=f"resumed-{at.isoformat()}", kind="resumed", body=reason,
           subject=f"{actor.name} has released the stop switch")  # fmt: skip


@transaction.atomic
def set_acting(on: bool, actor: Actor, reason: str) -> None:
    """Whether the installation acts at all; a fresh real one only observes."""
    if actor.is_person:
        _allow(actor, "resume")
    was = switch(lock=True).acting
    at = _flip(actor, reason, verb="switch.acting", summary=f"acting switched {'on' if on else 'off'}", acting=on)
    if was and not on:
        announce(key=f"observing-{at.isoformat()}", kind="observing", body=reason, link="/system/#switch",
                 subject=f"{actor.name} has switched acting off: healthboard only observes", thread="acting")  # fmt: skip
    elif on and not was:
        follow("acting", key=f"acting-{at.isoformat()}", kind="acting", body=reason,
               subject=f"{actor.name} has switched acting on")  # fmt: skip


@transaction.atomic
def _flip(actor: Actor, reason: str, *, verb: str, summary: str, **change: bool) -> datetime:
    """Switch it, at the time that is returned. Once it is stopped, the row says by whom and why until it is released,
    whatever else is switched or pressed meanwhile: whoever releases it goes by that. What the system stops it for, which
    only a person can judge, is said before it."""
    row, now = switch(lock=True), clock.now()
    told = {"changed_at": now, "changed_by": actor.name, "reason": reason}
    if row.stopped and change.get("stopped", True):
        told = {"reason": f"{reason} {row.reason}"} if not actor.is_person and "stopped" in change else {}
    told |= {name: told[name][:most] for name, most in (("changed_by", 150), ("reason", 255)) if name in told}
    Switch.objects.filter(pk=row.pk).update(**change, **told)
    record(verb, "switch", f"{summary}: {reason}", actor=actor, payload={"reason": reason, **change})
    return now


@transaction.atomic
def open_breaker(
    *, account: Account, region: str, kind: str, scope_kind: str, scope: str, why: str, actor: Actor
) -> Breaker:
    """Open it, or return the one that is open already. The switch is locked: no intent slips past an open breaker."""
    switch(lock=True)
    breaker, new = Breaker.objects.get_or_create(
        account=account,
        region=region,
        kind=kind,
        scope_kind=scope_kind,
        scope=scope,
        released_at=None,
        defaults={"why": why, "opened_at": clock.now()},
    )
    if new:
        payload = {"kind": kind, "scope": [scope_kind, scope]}
        record(
            "breaker.opened", f"breaker:{breaker.pk}", why, actor=actor, payload=payload, account=account, region=region
        )
        if kind != "CORRELATED":  # that one is told with its group case
            announce(
                key=f"breaker-{breaker.pk}", kind="breaker", body=why, link="/system/#breakers",
                subject=f"{breaker.title}: {breaker.where}", thread=f"breaker:{breaker.pk}",
                account=account.account_id, region=region, pool=scope if scope_kind == "pool" else "",
            )  # fmt: skip
    return breaker


@transaction.atomic
def release_breaker(breaker_id: int, actor: Actor, reason: str, *, second: Actor) -> Breaker:
    """Only two people close it: `actor` asked for it, `second` agrees (see `repairs.second`). After trouble with AWS or
    blindness the place is watched for full rounds first."""
    breaker = Breaker.objects.select_for_update().filter(pk=breaker_id).first()
    if breaker is None:
        raise NotFound(f"There is no breaker {breaker_id}.")
    pool = breaker.scope if breaker.scope_kind == "pool" else ""
    _allow(actor, "release", account=breaker.account, region=breaker.region, pool=pool)
    _allow(second, "second", account=breaker.account, region=breaker.region, pool=pool)
    if second.user.pk == actor.user.pk:
        raise NotAllowed("You asked for it: another person must confirm it.")
    if not reason.strip():
        raise Invalid("Say why it is safe to go on.")
    if breaker.released_at is not None:
        raise Closed(f"Already released by {breaker.released_by}.")
    both = f"{actor.name} and {second.name}"
    breaker.released_at, breaker.released_by, breaker.release_reason = clock.now(), both[:150], reason[:255]
    breaker.save(update_fields=["released_at", "released_by", "release_reason"])
    record("breaker.released", f"breaker:{breaker.pk}", f"released by {both}: {reason}", actor=second,
           payload={"reason": reason, "asked_by": actor.name}, account=breaker.account, region=breaker.region)  # fmt: skip
    follow(
        f"breaker:{breaker.pk}", key=f"breaker-released-{breaker.pk}", kind="breaker_released",
        subject=f"{breaker.title}: {breaker.where}, released by {both}", body=reason,
    )  # fmt: skip
    if breaker.kind in ("AWS_ERRORS", "BLIND"):
        watch_anew(breaker.released_at, account=breaker.account, region=breaker.region)
    return breaker


@transaction.atomic
def pause(
    *, actor: Actor, scope_kind: str, scope: str, reason: str, until: datetime, account: Account | None = None,
    region: str = "", pool: str = "",
) -> Pause:  # fmt: skip
    """Set it. `pool`: of the instance, where one is paused, so that a grant for its pool is enough."""
    _allow(actor, "pause", account=account, region=region, pool=scope if scope_kind == "pool" else pool)
    if not reason.strip():
        raise Invalid("A pause needs a reason.")
    if until <= clock.now():
        raise Invalid("A pause must end in the future.")
    if scope_kind != "fleet" and not scope:
        raise Invalid(f"Name the {scope_kind} to pause.")
    switch(lock=True)  # as for a breaker: after this transaction no intent is committed
    row = Pause.objects.create(
        account=account, region=region, scope_kind=scope_kind, scope=scope, reason=reason, until=until,
        set_by=actor.name[:150], set_by_user=actor.user, set_at=clock.now(),
    )  # fmt: skip
    record("pause.set", f"pause:{row.pk}", f"{scope_kind} {scope} paused: {reason}", actor=actor,
           payload={"until": until.isoformat()}, account=account, region=region)  # fmt: skip
    return row


@transaction.atomic
def end_pause(pause_id: int, actor: Actor) -> None:
    row = Pause.objects.select_for_update().filter(pk=pause_id).first()
    if row is None:
        raise NotFound(f"There is no pause {pause_id}.")
    _allow(actor, "pause", account=row.account, region=row.region, pool=_pool_of(row))
    if row.ended_at is None:
        row.ended_at, row.ended_by = clock.now(), actor.name[:150]
        row.save(update_fields=["ended_at", "ended_by"])
        record("pause.ended", f"pause:{row.pk}", f"{row.scope_kind} {row.scope} pause ended", actor=actor,
               account=row.account, region=row.region)  # fmt: skip


def _pool_of(row: Pause) -> str:
    """The pool whose grants cover a pause: its own, or that of its instance."""
    if row.scope_kind != "instance" or row.account_id is None:
        return row.scope if row.scope_kind == "pool" else ""
    found = Instance.objects.filter(account=row.account_id, region=row.region, instance_id=row.scope)
    return found.values_list("pool__name", flat=True).first() or ""


def scopes_of(instance: Instance, workloads: list[str]) -> set[tuple[str, str]]:
    """The scopes that a breaker may hold an instance by."""
    found = {
        ("place", ""),
        ("pool", instance.pool.name if instance.pool else ""),
        ("zone", instance.zone),
        ("image", instance.image_id),
        ("driver", instance.driver_version),
        ("instance_type", instance.instance_type),
    }
    return {s for s in found | {("workload", w) for w in workloads} if s[1] or s[0] == "place"}


def breakers_for(instance: Instance, workloads: list[str]) -> list[Breaker]:
    scopes = scopes_of(instance, workloads)
    rows = Breaker.objects.filter(account=instance.account, region=instance.region, released_at=None)
    rows = rows.select_related("account")
    return [b for b in rows if (b.scope_kind, b.scope) in scopes]


def aws_errors(instance: Instance) -> str:
    """Why nothing more is asked of AWS in this instance's place now; empty where AWS is not in lasting trouble."""
    row = Breaker.objects.filter(
        account=instance.account, region=instance.region, kind="AWS_ERRORS", released_at=None
    ).select_related("account").first()  # fmt: skip
    return f"Breaker open for {row.where}: {row.why}" if row else ""


def pauses_for(instance: Instance, workloads: list[str]) -> list[Pause]:
    now = clock.now()
    rows = Pause.objects.filter(ended_at=None, until__gt=now)
    return [p for p in rows if _covers(p, instance, workloads)]


def _covers(pause: Pause, instance: Instance, workloads: list[str]) -> bool:
    if pause.account_id not in (None, instance.account_id) or pause.region not in ("", instance.region):
        return False
    match pause.scope_kind:
        case "fleet":
            return True
        case "pool":
            return instance.pool is not None and pause.scope == instance.pool.name
        case "workload":
            return pause.scope in workloads
        case _:
            return pause.scope == instance.instance_id


def against(instance: Instance, workloads: list[str], *, automatic: bool, lock: bool = False) -> list[str]:
    """Why nothing may be changed about this instance now, in words; empty when nothing stands against it.

    A person's own decision passes a correlated breaker, which stops automatic repair; it passes nothing else.
    """
    row = switch(lock=lock)
    reasons = []
    if row.stopped:
        reasons.append(f"The stop switch was thrown by {row.changed_by}: {row.reason}")
    if not row.acting:
        reasons.append("Acting is switched off: this installation only observes")
    reasons += [
        f"Paused by {p.set_by} until {p.until:%Y-%m-%d %H:%M} UTC: {p.reason}" for p in pauses_for(instance, workloads)
    ]
    if (
        instance.paused_by_tag
        or (instance.pool and instance.pool.paused_by_tag)
        or (instance.cluster and instance.cluster.paused_by_tag)
    ):
        reasons.append("Paused by a healthboard:pause tag on the instance, its group or its cluster")
    for breaker in breakers_for(instance, workloads):
        if automatic or breaker.kind != "CORRELATED":
            reasons.append(f"Breaker open for {breaker.where}: {breaker.why}")
    return reasons


def _allow(actor: Actor, verb: str, *, account: Account | None = None, region: str = "", pool: str = "") -> None:
    if not actor.is_person:
        raise NotAllowed("Only a person may do this.")
    if reason := why_not(actor.user, verb, account=account, region=region, pool=pool):
        raise NotAllowed(reason)
    if verb in ("release", "resume", "second") and not actor.recent:
        raise again(actor)

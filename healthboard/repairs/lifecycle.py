"""The only writer of repairs, steps, calls and occupancy.

A worker claims a repair by a conditional UPDATE that raises its fence; every later write of that worker names the
fence and fails with `LostFence` once another worker has claimed it. AWS is never called inside one of these
transactions: `intend` commits the intent before a call, `answered` its outcome after.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, Exists, F, OuterRef, Q, Value, When

from healthboard import clock, words
from healthboard.audit import heads
from healthboard.audit.record import record
from healthboard.fleet.models import Instance
from healthboard.notices import outbox
from healthboard.people import second as people_second
from healthboard.people.access import again, given, why_not, withdrawn
from healthboard.people.actors import WORKER, Actor
from healthboard.people.models import Request
from healthboard.policies.models import PolicyVersion
from healthboard.refusals import AlreadyDecided, Closed, Held, Invalid, NotAllowed, NotFound, Withdrawn
from healthboard.repairs import agreement, brakes, budget, opening
from healthboard.repairs.models import Call, Repair, Step
from healthboard.repairs.states import CLOSED, MOVES, OPEN, State
from healthboard.wake import wake

LEASE = timedelta(seconds=60)
#: no step under way waits longer than this before it looks again
LONGEST_WAIT = timedelta(minutes=15)
#: how long a permission to go over the budget may be used
OVER_BUDGET_FOR = timedelta(hours=1)
#: outcome of a repair whose approval did not hold until its first changing call
NOT_APPROVED = "NOT_APPROVED"
#: outcome of a call whose worker stood still between the intent and the sending
NOT_SENT = "not sent"
#: exceptions of one plan, and of what ran there then: the next rung of the ladder, or another action, has them not
OF_ACTION = ("terminate_first", "force_tasks")
#: facts of one attempt to begin: another, after it was put off, finds them out anew
OF_ATTEMPT = ("drained_by_other", "unregistered", "busy_since", "not_idle_allowed", "without_answer")


class LostFence(Exception):
    """Another worker has claimed the repair since: stop at once, write nothing."""


class IllegalMove(Exception):
    """The state table does not know this move."""


def open_repair(
    *, instance: Instance, action: str, actor: Actor, values: dict[str, Any], not_before: datetime,
    policy_version: PolicyVersion | None = None, plan: dict[str, Any] | None = None, allowed: tuple[str, ...] = (),
    watch: bool = False, insisted: bool = False, words: list[dict[str, Any]] | None = None,
) -> Repair:  # fmt: skip
    """Schedule a repair. Call inside the transaction of the decision that it carries out. `words`: the people whose word
    it rests on (`access.given`); they must still be able to give it when something is changed."""
    now = clock.now()
    try:
        with transaction.atomic():
            repair = Repair.objects.create(
                instance=instance, pool=instance.pool, action=action, owner=instance.owner,
                automatic=not actor.is_person, requested_by=actor.name[:150], allowed=list(allowed), settings=values,
                policy_version=policy_version, plan=plan or {}, opened_at=now, not_before=not_before,
                next_at=not_before,
                facts={name: on for name, on in (("watch", watch), ("insisted", insisted), ("words", words)) if on},
            )  # fmt: skip
    except IntegrityError:
        other = Repair.objects.filter(instance=instance, state__in=OPEN).first()
        raise AlreadyDecided(
            f"{instance} is under repair already ({other.action.lower() if other else 'closed just now'}).",
            repair=other.pk if other else None,
        ) from None
    _audit(repair, "repair.scheduled", f"{action} of {instance} scheduled", actor, not_before=not_before.isoformat())
    wake("workers.repair.advance", repair.pk)
    return repair


def claim(repair_id: int, worker: str) -> Repair | None:
    """Take the repair if it is open, due and not leased; None where it is not, or another was first. A worker that stood
    still right after its claim, until another took over, reads the other's row and fence: its own lease tells them apart.
    """
    now = clock.now()
    lease = {"lease_owner": worker[:100], "lease_until": now + LEASE}
    taken = Repair.objects.filter(
        Q(lease_until=None) | Q(lease_until__lte=now), pk=repair_id, state__in=OPEN, next_at__lte=now
    ).update(fence=F("fence") + 1, **lease)
    repair = _full().filter(pk=repair_id, **lease).first() if taken else None
    if repair is not None:
        repair.due_at = repair.next_at  # type: ignore[attr-defined]
    return repair


def leases_of(prefix: str) -> list[str]:
    """Owners of running leases whose name begins so: one host's workers."""
    rows = Repair.objects.filter(state__in=OPEN, lease_until__gt=clock.now(), lease_owner__startswith=prefix)
    return list(rows.values_list("lease_owner", flat=True).distinct())


def free_leases(owner: str) -> int:
    """The worker `owner` has died: its repairs are due at once. Its fence, if it lives after all, is lost at the claim."""
    return Repair.objects.filter(state__in=OPEN, lease_owner=owner).update(lease_until=clock.now())


def pull_in() -> int:
    """Leases and waits that are longer than any: the clock was set back since. They end now. Not those that are a
    little longer: the clocks of two processes differ by some milliseconds, and a lease may be younger than our `now`.

    A living worker that held one of them loses its fence, and stops. Steps that are to come have begun, or ended, by now.
    """
    now = clock.now()
    steps = Step.objects.filter(repair__state__in=OPEN)
    steps.filter(started_at__gt=now).update(started_at=now)
    steps.filter(ended_at__gt=now).update(ended_at=now)
    rows = Repair.objects.filter(state__in=[State.RUNNING, State.UNDOING])
    freed = rows.filter(lease_until__gt=now + 2 * LEASE).update(lease_until=now)
    return freed + rows.filter(next_at__gt=now + LONGEST_WAIT).update(next_at=now)


def due(limit: int = 100) -> list[int]:
    now = clock.now()
    rows = Repair.objects.filter(Q(lease_until=None) | Q(lease_until__lte=now), state__in=OPEN, next_at__lte=now)
    return list(rows.order_by("next_at", "pk").values_list("pk", flat=True)[:limit])


@transaction.atomic
def settle(repair: Repair, *, wait: timedelta, why: str = "") -> None:
    """Give the claim back; look again after `wait`, or earlier when woken: at once, where that was since the claim."""
    if repair.state == State.ASKING:
        why = repair.why_waiting
    now = clock.now()
    unwoken = When(next_at=getattr(repair, "due_at", F("next_at")), then=Value(now + wait))
    mine = Repair.objects.filter(pk=repair.pk, fence=repair.fence, state__in=OPEN)
    if not mine.update(next_at=Case(unwoken, default=Value(now)), lease_until=None, lease_owner="", why_waiting=why):
        raise LostFence
    if why and why != repair.why_waiting:
        _audit(repair, "repair.waiting", why, WORKER)
    repair.why_waiting = why


@transaction.atomic
def start(repair: Repair, first_step: str) -> str | None:
    """SCHEDULED to RUNNING with a unit of the budget; or return why it must wait. Locks the switch and the pool.

    From then on it goes by the most careful of what was decided and what holds now, also where it was put off before.
    """
    row = _locked(repair)
    if behind := heads.behind():
        return behind
    values = opening.tightened(row)
    workloads = _workload_names(row)
    if held := brakes.against(row.instance, workloads, automatic=row.automatic, lock=True):
        return held[0]
    if held_by_budget := budget.take(row, values):
        return held_by_budget
    if stricter := sorted(name for name in values if values[name] != row.settings.get(name)):
        row.settings = values
        row.save(update_fields=["settings"])
        _audit(row, "repair.tightened", f"by the more careful policy of now: {', '.join(stricter)}", WORKER)
    _move(row, State.RUNNING, actor=WORKER, why=f"started by {row.requested_by}")
    _begin(row, first_step)
    repair.refresh_from_db()
    return None


@transaction.atomic
def put_off(repair: Repair, why: str, **facts: Any) -> None:
    """RUNNING back to SCHEDULED, without its unit of the budget: nothing was changed yet, and now is no time to begin.
    `facts`: what the next attempt begins with."""
    row = _locked(repair)
    if opening.touched(row):
        raise IllegalMove("a repair that has begun to change something is not put off")
    row.facts = {name: told for name, told in row.facts.items() if name not in OF_ATTEMPT} | facts
    row.save(update_fields=["facts"])
    _end(row, "SKIPPED", why)
    _move(row, State.SCHEDULED, actor=WORKER, why=why)
    Repair.objects.filter(pk=row.pk).update(step="")
    _now_others(row, budget.give_back(row))
    repair.refresh_from_db()


@transaction.atomic
def next_step(repair: Repair, name: str | None, *, note: str = "", skipped: bool = False) -> None:
    """End the step under way and begin `name` (None: there is none)."""
    row = _locked(repair)
    ended = _end(row, "SKIPPED" if skipped else "DONE", note)
    if name:
        _begin(row, name, after=ended)
    repair.refresh_from_db()


def not_approved(repair: Repair) -> str | None:
    """Why the people's word that a repair rests on carries it no more, before it has changed anything; None while it does."""
    if repair.automatic or repair.state not in (State.SCHEDULED, State.RUNNING) or opening.touched(repair):
        return None
    lasts = timedelta(seconds=float(repair.settings.get("expiry_s") or 0))
    until = max(repair.opened_at, repair.not_before) + lasts + opening.held_for(repair)
    if lasts and repair.state == State.SCHEDULED and clock.now() > until:
        return f"It was approved at {repair.opened_at:%Y-%m-%d %H:%M} UTC, and could not start since: that is too long ago."
    return _withdrawn(repair)


def _withdrawn(row: Repair) -> str | None:
    return withdrawn(row.facts.get("words", ()), **agreement.place(row))


@transaction.atomic
def refuse(repair: Repair, why: str) -> None:
    """What people approved is not carried out: nothing was changed, and the question is put anew."""
    row = _locked(repair)
    _audit(row, "repair.refused", f"not carried out: {why}", WORKER)
    if row.state == State.SCHEDULED:
        finish(repair, State.CANCELLED, NOT_APPROVED, why)
    else:
        begin_undo(repair, why)
        Repair.objects.filter(pk=row.pk).update(outcome=NOT_APPROVED)
    repair.refresh_from_db()


def hold(repair: Repair) -> None:
    """Within a transaction: no other worker claims the repair before its end. Raises LostFence where one has."""
    _locked(repair)


@transaction.atomic
def remember(repair: Repair, **facts: Any) -> None:
    row = _locked(repair)
    row.facts = {**row.facts, **facts}
    row.save(update_fields=["facts"])
    repair.facts = row.facts


@transaction.atomic
def intend(
    repair: Repair, *, service: str, operation: str, target: str, request: dict[str, Any], token: str = "",
    irreversible: bool = False,
) -> Call:  # fmt: skip
    """Commit the intent of one changing call. Raises Held where the switch, a pause or a breaker stands against it, and
    Withdrawn where a person's word that the irreversible step rests on holds no more.

    The switch row is locked, so that after a thrown switch has committed no intent is committed.
    """
    row = _locked(repair)
    if row.lease_until is None or row.lease_until <= clock.now():
        raise LostFence
    if not target.startswith("i-"):
        raise Invalid("A changing call needs exactly one instance id.")
    if behind := heads.behind():
        raise Held(behind)  # the database was put back: what it says of AWS may be long past
    undoing = row.state == State.UNDOING
    if row.state not in (State.RUNNING, State.UNDOING):
        raise Held(f"The repair is {row.state.lower()}.")
    held = brakes.against(row.instance, _workload_names(row), automatic=row.automatic, lock=True)
    if undoing and not brakes.switch().stopped:
        held = []  # our own steps may be taken back under any breaker or pause
    if held:
        raise Held(held[0])
    if row.stop_asked_by and not undoing and (irreversible or not row.irreversible):
        raise Held(f"{row.stop_asked_by} asked to stop")
    first = not undoing and not row.automatic and not opening.touched(row)
    turns = irreversible and not row.irreversible
    if (first or turns) and (gone := _withdrawn(row)):
        # the engine puts the question anew where nothing was changed; else it stands, and a person is asked
        raise Held(gone) if first else Withdrawn(gone)
    if turns:
        row.irreversible = True
        row.save(update_fields=["irreversible"])
    # slow reads must not use up the lease that the call and its outcome still need
    row.lease_until = clock.now() + LEASE
    row.save(update_fields=["lease_until"])
    step = row.steps.order_by("-number").first()
    call = Call.objects.create(
        step=step, repair=row, service=service, operation=operation, target=target, request=request, token=token,
        fence=row.fence, intended_at=clock.now(),
    )  # fmt: skip
    _audit(row, "repair.intent", f"{operation} on {target}", WORKER, call=call.pk, request=request)
    repair.irreversible, call.turns = row.irreversible, turns  # type: ignore[attr-defined]
    return call


@transaction.atomic
def answered(repair: Repair, call: Call, outcome: str, detail: str = "") -> None:
    """The outcome of a call: ``ok``, AWS's error code, `NOT_SENT`, or ``unknown`` where only reading back can tell.

    A call that was not sent, or that AWS refused, has changed nothing: the repair can be undone as before it.
    """
    row = _locked(repair)
    if outcome not in ("ok", "unknown") and getattr(call, "turns", False):
        row.irreversible = repair.irreversible = False
        row.save(update_fields=["irreversible"])
    Call.objects.filter(pk=call.pk, repair=row).update(
        answered_at=clock.now(), outcome=outcome[:64], detail=detail[:4000]
    )
    call.outcome, call.detail = outcome, detail
    _audit(row, "repair.outcome", f"{call.operation} on {call.target}: {outcome}", WORKER, call=call.pk, detail=detail)


@transaction.atomic
def assign_replacement(repair: Repair, instance_id: str) -> Instance | None:
    """Bind the launched instance to this repair, under the pool's lock; None where another repair has it."""
    row = _locked(repair)
    if row.pool_id:
        type(row.pool).objects.select_for_update(no_key=True).get(pk=row.pool_id)
    old = row.instance
    found, _ = Instance.objects.get_or_create(
        account=old.account, region=old.region, instance_id=instance_id,
        defaults={
            "first_seen_at": clock.now(), "cluster": old.cluster, "pool": old.pool, "owner": old.owner,
            "state": "pending", "instance_type": old.instance_type, "gpus_expected": old.gpus_expected,
        },
    )  # fmt: skip
    if Repair.objects.filter(replacement=found).exclude(pk=row.pk).exists():
        return None
    Instance.objects.filter(pk=found.pk).update(launched_by_us=True)
    row.replacement = found
    row.save(update_fields=["replacement"])
    _audit(row, "repair.replacement", f"{instance_id} replaces {old}", WORKER, replacement=instance_id)
    repair.replacement = found
    return found


@transaction.atomic
def replacement_ended(repair: Repair, why: str) -> None:
    """The launch bound to it has ended by itself: another one may take its place, this one never again. It stays bound
    until then, so that how its launch came out is counted for what it was launched from."""
    row = _locked(repair)
    ended = row.replacement.instance_id
    told = [*row.facts.get("ended_launches", []), ended]
    row.facts = {**row.facts, "ended_launches": told, "serving_since": None, "group_says": None}
    row.save(update_fields=["facts"])
    _audit(row, "repair.replacement_ended", f"{ended} ended by itself: {why}", WORKER, replacement=ended)
    repair.facts = row.facts


@transaction.atomic
def ask(repair: Repair, why: str, choices: list[dict[str, str]]) -> None:
    """Stand still and wait for a person, with the choices that there are; where nothing was changed yet, without a unit
    of the budget, which others may use meanwhile: once answered it begins anew, see `workers.repair.turns.anew`."""
    row = _locked(repair)
    row.facts = {**row.facts, "choices": choices, "agreed": []}
    if row.state == State.RUNNING and not opening.touched(row):
        row.facts |= opening.counting(row, True)
        _now_others(row, budget.give_back(row))
    row.why_waiting = why
    row.save(update_fields=["facts", "why_waiting"])
    _move(row, State.ASKING, actor=WORKER, why=why)
    _tell_asking(row, why, choices)
    wake("workers.verify.sweep")
    repair.refresh_from_db()


@transaction.atomic
def begin_undo(repair: Repair, why: str, *, outcome: str = "") -> None:
    row = _locked(repair)
    _end(row, "FAILED" if outcome else "SKIPPED", why)
    row.facts = {**row.facts, "undo_outcome": outcome, "undo_why": why}
    row.save(update_fields=["facts"])
    _move(row, State.UNDOING, actor=WORKER, why=why)
    repair.refresh_from_db()


@transaction.atomic
def finish(repair: Repair, state: State, outcome: str, why: str, *, actor: Actor = WORKER) -> None:
    """Close the repair and release its budget; its case is told by `workers.verify`."""
    row = _locked(repair)
    _end(row, "DONE" if state == State.SUCCEEDED else "FAILED", why)
    row.outcome, row.outcome_why, row.why_waiting, row.closed_at = outcome, why, "", clock.now()
    row.lease_until, row.lease_owner = None, ""
    row.save(update_fields=["outcome", "outcome_why", "why_waiting", "closed_at", "lease_until", "lease_owner"])
    _move(row, state, actor=actor, why=f"{outcome}: {why}")
    _now_others(row, budget.release(row))
    if not _case_of(row):  # what has a case is told with it
        outbox.follow(
            thread(row),
            key=f"repair-ended-{row.pk}",
            kind="repair_ended",
            subject=f"{_words(row)}: {outcome}",
            body=why,
        )
    wake("workers.verify.sweep")
    wake("workers.repair.sweep")
    repair.refresh_from_db()


def told(repair_id: int, *, only: State | None = None) -> bool:
    """Its end was told to its case; True for the first to say so."""
    rows = Repair.objects.filter(pk=repair_id, carried_back_at=None, closed_at__isnull=False)
    if only is not None:
        rows = rows.filter(state=only)
    return bool(rows.update(carried_back_at=clock.now()))


@transaction.atomic
def change_action(repair: Repair, action: str, first_step: str, why: str) -> None:
    """The next rung of the ladder, on the same instance: heavier, and audited."""
    row = _locked(repair)
    _end(row, "FAILED", why)
    row.facts = {**row.facts, "tried": [*row.facts.get("tried", []), row.action]}
    row.action, row.irreversible = action, False
    row.allowed = [exception for exception in row.allowed if exception not in OF_ACTION]
    row.save(update_fields=["action", "facts", "irreversible", "allowed"])
    if row.state == State.ASKING:
        _move(row, State.RUNNING, actor=WORKER, why=why)
    _begin(row, first_step)
    _audit(row, "repair.escalated", f"now {action}: {why}", WORKER)
    repair.refresh_from_db()


# --- what people ask for -------------------------------------------------------------------------------------------


@transaction.atomic
def cancel_scheduled(repair_id: int, *, actor: Actor, why: str) -> bool:
    """Undo before anything was changed: a conditional move out of SCHEDULED. False where it has started."""
    row = Repair.objects.select_for_update().get(pk=repair_id)
    if row.state != State.SCHEDULED:
        return False
    Repair.objects.filter(pk=row.pk).update(
        fence=F("fence") + 1, closed_at=clock.now(), outcome="CANCELLED", outcome_why=why, lease_until=None
    )
    row.refresh_from_db()
    _move(row, State.CANCELLED, actor=actor, why=why)
    _now_others(row, budget.release(row))
    return True


@transaction.atomic
def ask_stop(repair_id: int, *, actor: Actor) -> None:
    """Stop after the step under way and undo what we did; refused after the first irreversible step."""
    row = _for_person(repair_id, actor, "undo")
    if row.state in CLOSED:
        raise Closed("The repair is over.")
    if row.state == State.SCHEDULED:
        cancel_scheduled(row.pk, actor=actor, why=f"stopped by {actor.name}")
        wake("workers.verify.sweep")
        return
    if row.irreversible:
        raise Closed("Too late to undo: the irreversible step was taken.")
    Repair.objects.filter(pk=row.pk).update(stop_asked_by=actor.name[:150], next_at=clock.now())
    _audit(row, "repair.stop_asked", f"{actor.name} asked to stop and undo", actor)
    wake("workers.repair.advance", row.pk)


@transaction.atomic
def answer(repair_id: int, *, actor: Actor, choice: str, reason: str, second: Actor | None = None) -> int:
    """A person's answer to a repair that asks; `choice` is a key of `facts["choices"]`. `second`: the one who confirmed
    what takes two people (see `repairs.second`). Returns how many more people must choose the same before it is carried
    out: 0 where it is."""
    row = _for_person(repair_id, actor, "decide")
    if row.state != State.ASKING:
        raise Closed("This repair does not wait for an answer any more.")
    known = {c["key"]: c for c in row.facts.get("choices", [])}
    if choice not in known:
        raise Invalid(f"Choose one of: {', '.join(known) or 'nothing'}.")
    if not reason.strip():
        raise Invalid("Say why.")
    needs = known[choice].get("needs", "decide")
    facts = {**row.facts, "answer": choice, "choices": [], "agreed": []}
    if needs != "decide":
        if second is None or second.user is None or second.user.pk == actor.user.pk:
            raise NotAllowed("This takes two people: ask for it, and another person confirms it.")
        _for_person(repair_id, second, needs)
        if not second.recent:
            raise again(second)
        told = [{**word, "exception": choice} for word in (_word(actor, "decide"), _word(second, needs))]
        facts["words"] = [*facts.get("words", []), *told]
    elif choice in agreement.HEAVIER:
        told, more = _agree(row, actor, choice, f"{known[choice]['title']} – {reason}")
        if more:
            return more
        facts["words"] = [*facts.get("words", []), *told]
    who = f"{actor.name} and {second.name}" if second else actor.name
    people_second.drop(f"repair:{row.pk}", f"answered by {who}", actor=second or actor)
    exception = needs != "decide" or choice in ("dead_host", "unkillable")
    allowed = sorted({*row.allowed, choice}) if exception else row.allowed
    if choice == "force_tasks":
        facts["given_up"] = row.facts.get("left_here")  # these, and none that comes later
    Repair.objects.filter(pk=row.pk).update(
        facts=facts, allowed=allowed, why_waiting="", next_at=clock.now(), lease_until=None, fence=F("fence") + 1
    )
    row.refresh_from_db()
    _audit(row, "repair.answered", f"{who}: {known[choice]['title']} – {reason}", second or actor, choice=choice)
    to = State.UNDOING if row.step.startswith("undo_") else State.RUNNING
    _move(row, to, actor=actor, why=known[choice]["title"])
    outbox.follow(
        thread(row), key=f"repair-answered-{row.pk}-{row.fence}", kind="repair_answered", body=reason,
        subject=f"{_words(row)}: {known[choice]['title']}, by {who}",
    )  # fmt: skip
    wake("workers.repair.advance", row.pk)
    return 0


@transaction.atomic
def allow_over_budget(repair: Repair, *, request: Request, asker: Actor, second: Actor) -> None:
    """Two people let this one repair start with one unit more than its pool's budget; see `budget.take` for the bounds."""
    row = Repair.objects.select_for_update().get(pk=repair.pk)
    if row.state != State.SCHEDULED:
        raise Closed("This repair does not wait for the budget of its pool.")
    until = clock.now() + OVER_BUDGET_FOR
    words_given = [_word(asker, "over_budget"), _word(second, "second")]
    facts = {**row.facts, "over_budget": {"request": request.pk, "until": until.isoformat(), "words": words_given}}
    allowed = sorted({*row.allowed, budget.OVER})
    Repair.objects.filter(pk=row.pk).update(facts=facts, allowed=allowed, next_at=clock.now())
    text = f"{asker.name} and {second.name} let it start over the budget: {request.reason}"
    _audit(row, "repair.over_budget", text, second, request=request.pk, asked_by=asker.name, until=until.isoformat())
    wake("workers.repair.advance", row.pk)


# --- within ---------------------------------------------------------------------------------------------------------


def _full():
    """With what every pass reads; each join more costs the server's planner. `unanswered`: a worker left calls behind."""
    left = Call.objects.filter(repair=OuterRef("pk"), answered_at=None)
    rows = Repair.objects.select_related("instance__account", "instance__pool", "instance__cluster")
    return rows.annotate(unanswered=Exists(left))


def _locked(repair: Repair) -> Repair:
    row = Repair.objects.select_for_update().get(pk=repair.pk)
    if row.fence != repair.fence or row.state in CLOSED:
        raise LostFence
    return row


def _move(row: Repair, to: State, *, actor: Actor, why: str) -> None:
    if to not in MOVES[State(row.state)]:
        raise IllegalMove(f"{row.state} -> {to}")
    if not Repair.objects.filter(pk=row.pk, state=row.state, fence=row.fence).update(state=to):
        raise LostFence
    _audit(row, f"repair.{to.lower()}", why, actor, before=row.state, after=str(to))
    row.state = to


def _now_others(row: Repair, freed: bool) -> None:
    """A unit of the budget was given back: what waits in its pool is due at once, so that it need not ask again and again.
    Locked in one order by all."""
    if not freed:
        return
    now = clock.now()
    asleep = Q(next_at__gt=now) | Q(lease_until__gt=now)  # or about to be: who holds the claim finds it changed
    waiting = Repair.objects.filter(asleep, pool=row.pool_id, state=State.SCHEDULED, not_before__lte=now)
    others = waiting.exclude(pk=row.pk).select_for_update().order_by("pk").values_list("pk", flat=True)
    Repair.objects.filter(pk__in=list(others)).update(next_at=now)


def _begin(row: Repair, name: str, *, after: Step | None = None) -> None:
    number = (after.number if after is not None else row.steps.count()) + 1
    Step.objects.create(repair=row, number=number, name=name, started_at=clock.now())
    Repair.objects.filter(pk=row.pk).update(step=name, why_waiting="")
    row.step = name


def _end(row: Repair, state: str, note: str) -> Step | None:
    """The step that was under way, which is the last one; None where there was none."""
    running = row.steps.filter(state="RUNNING").order_by("-number").first()
    if running is None:
        return None
    running.state, running.note, running.ended_at = state, note, clock.now()
    running.save(update_fields=["state", "note", "ended_at"])
    _audit(row, "repair.step", f"{running.name}: {note or state.lower()}", WORKER, step=running.name, state=state)
    return running


def _tell_asking(row: Repair, why: str, choices: list[dict[str, str]]) -> None:
    kind = "verify_failed" if row.step == "verify" else "repair_asks"
    at = row.instance
    outbox.announce(
        key=f"{kind}-{row.pk}-{row.fence}", kind=kind, subject=f"{_words(row)}: {why}", body=why,
        link=f"/repairs/{row.pk}/", thread=thread(row), to=row.settings.get("notify") or [outbox.OPERATORS],
        account=at.account.account_id, region=at.region, pool=row.pool.name if row.pool else "",
        workloads=_workload_names(row),
        facts={"Machine": at, "Step": row.step, "Answers": "; ".join(choice["title"] for choice in choices)},
    )  # fmt: skip


def _word(actor: Actor, verb: str, group: str = "") -> dict[str, Any]:
    return given(actor.user, actor.name, verb, getattr(actor.token, "pk", None), group)


def _agree(row: Repair, actor: Actor, choice: str, why: str) -> tuple[list[dict[str, Any]], int]:
    """The words of all who have chosen it with this person, and how many more it takes; kept until it takes none."""
    if reason := agreement.why_not(row, actor.user, choice):
        raise NotAllowed(reason)
    before, (people, group) = agreement.agreed(row, choice), agreement.needed(row, choice)
    told = [*before, {**_word(actor, "second" if before else "decide", group), "choice": choice}]
    if more := max(people - len(told), 0):
        row.facts = {**row.facts, "agreed": told}
        row.save(update_fields=["facts"])
        _audit(row, "repair.agreed", f"{actor.name}, {len(told)} of {people}: {why}", actor, choice=choice)
    return told, more


def _words(row: Repair) -> str:
    return f"{words.action(row.action)} {row.instance}"


def _case_of(row: Repair) -> int | None:
    return getattr(getattr(row, "decision", None), "case_id", None)


def thread(row: Repair) -> str:
    """What is told of a repair belongs to the matter of its case, where it has one."""
    case = _case_of(row)
    return f"case:{case}" if case else f"repair:{row.pk}"


def _for_person(repair_id: int, actor: Actor, verb: str) -> Repair:
    row = Repair.objects.select_for_update().filter(pk=repair_id).first()
    if row is None:
        raise NotFound(f"There is no repair {repair_id}.")
    if not actor.is_person:
        raise NotAllowed("Only a person may do this.")
    pool = row.pool.name if row.pool else ""
    if reason := why_not(actor.user, verb, account=row.instance.account, region=row.instance.region, pool=pool):
        raise NotAllowed(reason)
    return row


def _workload_names(row: Repair) -> list[str]:
    """Of what runs there, and of what did when its case opened: a pause or a breaker of theirs holds on without them."""
    running = row.instance.tasks.exclude(workload=None).values_list("workload__name", flat=True)
    return list(running.union(opening.frozen(row).values_list("name", flat=True)))


def _audit(row: Repair, verb: str, summary: str, actor: Actor, **payload: Any) -> None:
    record(verb, f"repair:{row.pk}", summary, actor=actor, instance=_named(row), repair_id=row.pk, payload=payload)


def _named(row: Repair) -> Instance:
    """Its machine, where it was not read yet with no more than its names: they never change, and nothing else is told."""
    if Repair.instance.is_cached(row):
        return row.instance
    rows = Instance.objects.select_related("account")
    return rows.only("instance_id", "region", "account__account_id").get(pk=row.instance_id)

"""What people answer to a case: approve, override, dismiss, snooze, undo, release. One `decide()` for all ways in."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from healthboard import clock
from healthboard.cases import evidence, groups, lifecycle, telling
from healthboard.cases import plan as plans
from healthboard.cases.judge import judge, untouchable
from healthboard.cases.models import Case, Decision
from healthboard.cases.states import OPEN, Resolution, State
from healthboard.fleet import record
from healthboard.people import second as people_second
from healthboard.people.access import again, given, in_group, why_not
from healthboard.people.actors import Actor
from healthboard.policies.reading import BAD, reread
from healthboard.refusals import AlreadyDecided, Changed, Closed, Held, Invalid, NotAllowed, NotFound, Refusal
from healthboard.repairs import brakes
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs.models import Breaker
from healthboard.repairs.states import State as RepairState
from healthboard.words import action as action_words

KINDS = ("approve", "override", "dismiss", "snooze")
#: what a case is after an answer, where that is not decided
_AFTER = {"dismiss": "Closed", "snooze": "Snoozed"}
SNOOZE_MOST_S = 7 * 86400
BULK_MOST = 50
#: exceptions that may be allowed together with an answer; every other one is a repair's own question
ALLOWABLE = {"terminate_first"}


def decide(
    case_id: int, *, actor: Actor, kind: str, plan_version: int, evidence_hash: str, action: str = "", reason: str = "",
    snooze_s: float | None = None, allow: tuple[str, ...] = (),
) -> Decision:  # fmt: skip
    """Record one answer and start what it asks for. Raises a `Refusal` (see there for the HTTP status)."""
    reason = (reason or "").strip()
    try:
        _check_form(kind, action, reason, snooze_s, allow)
        with transaction.atomic():
            case = Case.objects.select_for_update().filter(pk=case_id).first()
            _check(case, case_id, actor, kind, plan_version, evidence_hash)
            if kind in ("dismiss", "snooze"):
                return _put_aside(case, actor, kind, reason, snooze_s)
            if kind == "approve" and action not in ("", case.action):
                raise Invalid(f"{case.action} is proposed here: to choose {action}, override and say why.")
            return _carry_out(case, actor, kind, action or case.action, reason, allow)
    except Refusal as refusal:
        _keep_refusal(case_id, actor, kind, refusal)
        raise


def decide_many(rows: list[dict[str, Any]], *, actor: Actor, kind: str, reason: str = "") -> list[tuple[int, Any]]:
    """One answer for each explicit row {"case_id", "plan_version", "evidence_hash"}; results per row."""
    if len(rows) > BULK_MOST:
        raise Invalid(f"At most {BULK_MOST} cases at once; {len(rows)} were sent.")
    results: list[tuple[int, Any]] = []
    for row in rows:
        try:
            decision = decide(
                int(row["case_id"]), actor=actor, kind=kind, reason=reason, plan_version=int(row["plan_version"]),
                evidence_hash=str(row["evidence_hash"]),
            )  # fmt: skip
            results.append((decision.case_id, decision))
        except Refusal as refusal:
            results.append((int(row["case_id"]), refusal))
    return results


@transaction.atomic
def undo(case_id: int, *, actor: Actor) -> None:
    """Take the last decision back: at once in its undo window, else by stopping the repair between two steps."""
    case = Case.objects.select_for_update().filter(pk=case_id).first()
    if case is None:
        raise NotFound(f"There is no case {case_id}.")
    _allow(case, actor, "undo")
    decision = case.decisions.select_related("repair").exclude(repair=None).order_by("-at", "-pk").first()
    if decision is None or decision.undone_at is not None:
        raise Closed("There is no decision to take back.")
    why = f"taken back by {actor.name}"
    if repairs.cancel_scheduled(decision.repair_id, actor=actor, why=why):
        _undone(decision, actor)
        lifecycle.audit(case, "case.undone", why, actor, repair_id=decision.repair_id)
        if case.state == State.DECIDED:
            lifecycle.move(case, State.WAITING, actor, why)
            lifecycle.write(case, why_waiting=why, expires_at=None, plan_version=case.plan_version + 1)
            if case.by_hand:  # nothing is left to be answered
                lifecycle.close(case, Resolution.WITHDRAWN, why, actor)
        if case.instance_id:
            record.look_again(case.instance_id)
        return
    repairs.ask_stop(decision.repair_id, actor=actor)
    _undone(decision, actor)
    lifecycle.audit(
        case, "case.stop_asked", f"{actor.name} asked to stop and undo", actor, repair_id=decision.repair_id
    )


@transaction.atomic
def release(case_id: int, *, actor: Actor, reason: str, second: Actor) -> None:
    """Release a correlated case, which `actor` asked for and `second` agrees to (see `cases.second`): its breaker closes, the evidence so far is consumed, members become cases of their own."""
    # members before their group, as a member's own reading locks them
    members = list(Case.objects.select_for_update().filter(parent_id=case_id, state=State.HELD).order_by("pk"))
    group = Case.objects.select_for_update().filter(pk=case_id, instance=None).first()
    if group is None:
        raise NotFound(f"There is no correlated case {case_id}.")
    if group.state == State.CLOSED:
        raise Closed("It was released already.")
    if group.breaker_id is None:
        raise Invalid("This case holds nothing that could be released: it closes by itself when it is over.")
    for pk in Breaker.objects.filter(pk__in=groups.breakers_of(group), released_at=None).values_list("pk", flat=True):
        brakes.release_breaker(pk, actor, reason, second=second)
    now = clock.now()
    lifecycle.decided(
        group, kind=Decision.Kind.RELEASE, action="", reason=reason, user=actor.user, actor=actor.name[:150],
        via=actor.via, outcome="DONE",
    )  # fmt: skip
    lifecycle.close(group, Resolution.RELEASED, reason, actor)
    people_second.drop(f"case:{group.pk}", "released", actor=second)
    for member in members:
        lifecycle.move(member, State.WAITING, actor, f"released by {actor.name} and {second.name}: {reason}")
        lifecycle.write(member, evidence_at=now, why_waiting="released", plan_version=member.plan_version + 1)
        record.look_again(member.instance_id)


# --- checks, in the order: form, there, allowed, open, undecided, unchanged ------------------------------------------


def _check_form(kind: str, action: str, reason: str, snooze_s: float | None, allow: tuple[str, ...]) -> None:
    if kind not in KINDS:
        raise Invalid(f"Decide one of: {', '.join(KINDS)}.")
    if kind in ("override", "dismiss") and not reason:
        raise Invalid(f"To {kind} takes a reason: the next person will want to know.")
    if kind == "override" and not action:
        raise Invalid("Choose the action to override to.")
    if set(allow) - ALLOWABLE:
        raise Invalid(f"Allow only: {', '.join(sorted(ALLOWABLE))}.")
    if kind == "snooze" and not (snooze_s and 60 <= snooze_s <= SNOOZE_MOST_S):
        raise Invalid("Snooze for between one minute and seven days.")


def _check(case: Case | None, case_id: int, actor: Actor, kind: str, plan_version: int, evidence_hash: str) -> None:
    if case is None:
        raise NotFound(f"There is no case {case_id}.")
    _allow(case, actor, "decide")
    if case.state == State.CLOSED:
        raise Closed(f"This case is closed ({case.resolution.lower().replace('_', ' ')}).")
    if case.instance_id is None and case.breaker_id is None:
        raise Held("Nothing is proposed or held here: the case closes by itself when it is over.")
    if case.instance_id is None:
        raise Held("A correlated case is released, not approved: see its page.")
    if case.state == State.DECIDED:
        last = case.decisions.order_by("-at", "-pk").first()
        who = f"{last.actor} ({last.get_kind_display()})" if last else "somebody"
        raise AlreadyDecided(f"Already decided by {who}.", decision=last.pk if last else None)
    if case.state == State.HELD:
        raise Held(f"Held by correlated case {case.parent_id}: release that first.")
    if plan_version != case.plan_version or evidence_hash != case.evidence_hash:
        raise Changed("It changed since you saw it: look again, then decide.", changes=_changes_since(case, plan_version),
                      plan_version=case.plan_version, evidence_hash=case.evidence_hash)  # fmt: skip


def _changes_since(case: Case, version: int) -> list[str]:
    newer = [c for c in case.plan.get("changed", []) if c["version"] > version]
    return [what for change in newer for what in change["what"]] or ["the evidence or the plan"]


def _allow(case: Case, actor: Actor, verb: str) -> None:
    if not actor.is_person:
        raise NotAllowed("Only a person may decide this.")
    pool = case.pool.name if case.pool else ""
    if reason := why_not(actor.user, verb, account=case.account, region=case.region, pool=pool):
        raise NotAllowed(reason)


def _keep_refusal(case_id: int, actor: Actor, kind: str, refusal: Refusal) -> None:
    """Each refusal is on record, with its reason."""
    with transaction.atomic():
        case = Case.objects.filter(pk=case_id).select_related("instance__account").first()
        if case is not None:
            lifecycle.audit(case, "case.refused", f"{kind[:20]} by {actor.name} refused: {refusal.message}", actor)
            if isinstance(refusal, Changed) and case.instance_id:
                record.look_again(case.instance_id)


# --- carrying out -----------------------------------------------------------------------------------------------------


def _put_aside(case: Case, actor: Actor, kind: str, reason: str, snooze_s: float | None) -> Decision:
    decision = _record(case, actor, kind, "", reason, outcome="DONE")
    if kind == "dismiss":
        lifecycle.close(case, Resolution.DISMISSED, reason, actor)
        return decision
    until = clock.now() + timedelta(seconds=snooze_s)
    words = f"snoozed until {until:%Y-%m-%d %H:%M:%S} UTC" + (f": {reason}" if reason else "")
    if case.state != State.SNOOZED:  # snoozed anew: only its end moves
        lifecycle.move(case, State.SNOOZED, actor, words)
    lifecycle.write(case, snoozed_until=until, expires_at=None, why_waiting=words)
    return decision


def _carry_out(case: Case, actor: Actor, kind: str, action: str, reason: str, allow: tuple[str, ...]) -> Decision:
    instance = case.instance
    instance.refresh_from_db()
    seen = reread(instance)
    judged = judge(instance, seen)
    if action != "DIAGNOSE" and (changes := evidence.moved(case, seen, judged)):
        raise Changed("It changed since you saw it: it is read anew. Look again, then decide.", changes=changes,
                      plan_version=case.plan_version, evidence_hash=case.evidence_hash)  # fmt: skip
    _possible(case, actor, action, judged)
    values = dict(seen.policy.values)
    words, waiting = _second_person(case, actor, kind, action, reason, values, seen.policy, allow)
    if waiting:
        return waiting
    allowed = set(allow)
    if judged.dead_host:
        allowed.add("dead_host")  # the plan that was approved says so
    now = clock.now()
    watch = judged.watch and action == "REPLACE"
    plan = plans.build(instance, judged, values, action)
    repair = repairs.open_repair(
        instance=instance, action=action, actor=actor, values=values, plan=plan, allowed=tuple(sorted(allowed)),
        not_before=now + timedelta(seconds=float(values["undo_s"]) if action != "DIAGNOSE" else 0),
        policy_version=seen.policy.version, watch=watch,
        # what a person asked of a machine that was shown as good does not end because it is good
        insisted=case.by_hand and case.verdict not in BAD, words=words,
    )  # fmt: skip
    evidence.keep(case, seen, judged)
    decision = _record(
        case, actor, kind, action, reason, outcome="DONE", repair=repair, version=seen.policy.version,
        allow=sorted(allow),
    )  # fmt: skip
    case.decisions.filter(outcome="PENDING").update(outcome="DONE")
    lifecycle.move(case, State.DECIDED, actor, f"{action} {decision.get_kind_display()} by {actor.name}")
    lifecycle.write(case, expires_at=None, why_waiting="", plan={**plan, "changed": case.plan.get("changed", [])})
    return decision


def _possible(case: Case, actor: Actor, action: str, judged: Any) -> None:
    if action == "DIAGNOSE":
        return
    if why := untouchable(case.instance, action):
        raise Held(f"Nothing is done here: {why}.")
    if action not in {c["action"] for c in plans.choices(case.instance, judged)}:
        raise Invalid(f"{action} is not possible for this instance.")
    names = [w.name for w in case.workloads.all()]
    if held := brakes.against(case.instance, names, automatic=False):
        raise Held(held[0])


def _second_person(
    case: Case, actor: Actor, kind: str, action: str, reason: str, values: dict[str, Any], policy: Any,
    allow: tuple[str, ...],
) -> tuple[list[dict[str, Any]], Decision | None]:  # fmt: skip
    """The words that the repair rests on; and where more people are wanted, this one's decision, which waits for the rest.

    The policy may want several; to terminate first takes two, the last of them an approver, whatever it wants. Whoever
    comes after the first is neither one of those before nor the last editor of a policy in force.
    """
    place = {"account": case.account, "region": case.region, "pool": case.pool.name if case.pool else ""}
    verb = "terminate_first" if "terminate_first" in allow else "second"
    needed = max(int(values.get("approvals") or 1), 2 if verb == "terminate_first" else 1)
    group = values.get("approver_group") or ""
    if action == "DIAGNOSE":
        needed, group = 1, ""
    pending = list(_same(case, action, allow))
    others = {d.user_id for d in pending}
    if needed > 1 and actor.user.pk in others:
        raise AlreadyDecided("You have approved this already: another person must, too.")
    if needed > 1 and others:
        if why := why_not(actor.user, verb, **place):
            raise NotAllowed(why)
        if actor.user.pk in {version.saved_by_id for version in policy.versions}:
            raise NotAllowed("You were the last to edit the policy in force: another person must approve this.")
    if needed > 1 and hasattr(actor.user, "service"):
        raise NotAllowed("A service account is not one of several people.")
    if verb == "terminate_first" and not actor.recent:
        raise again(actor)
    if group and not in_group(actor.user, group):
        raise NotAllowed(f"The policy wants an approver of the group {group}.")
    words = [given(d.user, d.actor, "decide", d.token_id, group) for d in pending] if needed > 1 else []
    words.append(given(actor.user, actor.name, verb if others and needed > 1 else "decide", _token(actor), group))
    if len(others) + 1 >= needed:
        return words, None
    decision = _record(case, actor, kind, action, reason, outcome="PENDING", allow=sorted(allow))
    first = f", {' and '.join(sorted(allow)).replace('_', ' ')}" if allow else ""
    lifecycle.write(case, why_waiting=f"{len(others) + 1} of {needed} people have approved {action}{first}")
    return words, decision


def _same(case: Case, action: str, allow: Iterable[str]) -> QuerySet[Decision]:
    """What waits for more people to say just this of the case as it stands."""
    return case.decisions.filter(
        outcome="PENDING", action=action, plan_version=case.plan_version, evidence_hash=case.evidence_hash,
        allow=sorted(allow),
    )  # fmt: skip


def _token(actor: Actor) -> int | None:
    return getattr(actor.token, "pk", None)


def _record(
    case: Case, actor: Actor, kind: str, action: str, reason: str, *, outcome: str, repair: Any = None,
    version: Any = None, allow: list[str] | None = None,
) -> Decision:  # fmt: skip
    decision = lifecycle.decided(
        case, kind=kind, action=action, reason=reason, user=actor.user, actor=actor.name[:150], via=actor.via,
        outcome=outcome, repair=repair, policy_version=version or case.policy_version, allow=allow or [],
        token=actor.token,
    )  # fmt: skip
    words = f"{decision.get_kind_display()} by {actor.name}" + (f": {reason}" if reason else "")
    lifecycle.audit(case, f"case.{kind}", f"{action} {words}".strip(), actor,
                     repair_id=repair.pk if repair else None, decision=decision.pk)  # fmt: skip
    if outcome != "PENDING":
        telling.tell(
            case, "case_decided", key=f"case-decision-{decision.pk}", body=reason,
            facts={"State": _AFTER.get(kind, "Decided"), "Expires": ""},
            subject=f"{case.title}: {action_words(action).lower() + ', ' if action else ''}"
            f"{decision.get_kind_display()} by {actor.name}",
        )  # fmt: skip
    if kind in ("dismiss", "override") or repair:
        _refuse_others(case, decision)
    return decision


def _refuse_others(case: Case, decision: Decision) -> None:
    """Any denial wins, and so does what is carried out: of what waits for more people only what says the same goes on."""
    same = _same(case, decision.action, decision.allow).values("pk")
    others = case.decisions.filter(outcome="PENDING").exclude(pk=decision.pk).exclude(pk__in=same)
    older = others.exclude(plan_version=case.plan_version, evidence_hash=case.evidence_hash)
    older.update(outcome="REFUSED", outcome_why="the plan changed after it")
    others.update(outcome="REFUSED", outcome_why=f"{decision.actor} decided otherwise")


def _undone(decision: Decision, actor: Actor) -> None:
    why = f"taken back by {actor.name}"
    lifecycle.outcome_of(decision, "UNDONE", why, undone_at=clock.now(), undone_by=actor.name[:150])
    repairs.told(decision.repair_id, only=RepairState.CANCELLED)


__all__ = ["BULK_MOST", "KINDS", "OPEN", "decide", "decide_many", "release", "undo"]

"""Carries one repair on, as far as it goes now.

Claim; then, step by step: look at AWS afresh, check what stands against any change, run the step, write what came of
it under the fence. Whatever kills the worker, the next claim finds the row and reads back from AWS what happened.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from healthboard import clock
from healthboard.aws import places
from healthboard.config import LEAST_ROUND_S
from healthboard.fleet import gaps
from healthboard.fleet.ending import why_ending
from healthboard.fleet.models import Pulse
from healthboard.fleet.seeing import why_blind, why_watching
from healthboard.refusals import Held, Withdrawn
from healthboard.repairs import brakes, budget, lifecycle, opening
from healthboard.repairs.recipes import STEPS, TOUCHABLE, UNDO
from healthboard.repairs.states import State
from workers.repair import idle
from workers.repair.begin import may_begin
from workers.repair.leases import worker_name
from workers.repair.look import AwsTrouble
from workers.repair.results import Ask, Back, Climb, Done, End, PutOff, Result, Skip, Undo, Wait
from workers.repair.run import Run
from workers.repair.steps import checkpoint, launch, leave, prepare, reboot, replace, undo
from workers.repair.stuck import TRIES, cannot_begin, stuck, troubled, untroubled
from workers.repair.turns import anew, answered, climb, offered, order_of
from workers.verify import check

log = logging.getLogger(__name__)

#: passes over steps within one claim; the rest goes on with the next wake-up
PASSES = 12
#: how long a look at all instances counts: three of its rounds; a busy machine's do not shrink with the sandbox's speed
LOOK_COUNTS = timedelta(seconds=90)

HANDLERS = {
    "recheck": prepare.recheck, "room": prepare.room, "keep": prepare.keep,
    "idle": idle.idle, "checkpoint": checkpoint.checkpoint,
    "drain": leave.drain, "standby": leave.standby, "step_aside": leave.step_aside, "tasks": leave.tasks,
    "launch": launch.launch, "replacement": replace.replacement, "detach": replace.detach,
    "terminate": replace.terminate, "deregister": replace.deregister, "watch": replace.watch,
    "reboot": reboot.reboot, "stop": reboot.stop, "start": reboot.start, "boot": reboot.boot,
    "diagnose": reboot.diagnose, "soak": reboot.soak, "rejoin": reboot.rejoin, "activate": reboot.activate,
    "ask_node": reboot.ask_node, "verify": check.verify,
    "undo_standby": undo.undo_standby, "undo_drain": undo.undo_drain, "undo_surplus": undo.undo_surplus,
    "undo_launch": undo.undo_launch,
}  # fmt: skip

#: steps that neither read nor change AWS about the old machine's being there
INDIFFERENT = ("ask_node", "deregister", "verify", "watch", "terminate", *UNDO)


def advance(repair_id: int) -> str:
    """One claim of one repair. Returns a word for the log: what it came to. Harmless when doubled or early."""
    gaps.notice()
    repair = lifecycle.claim(repair_id, worker_name())
    if repair is None:
        return "not due, or claimed by another"
    run, failed = Run(repair), False
    try:
        wait = _asked(run)
    except lifecycle.LostFence:
        return "lost the fence"
    except Exception as error:  # a fault of ours must not loop hot or hide: it is on the repair, and tried again
        log.exception("repair %s", repair_id)
        failed = True
        wait = Wait(60, f"internal error in {repair.step or 'the start'}: {type(error).__name__}: {error}"[:500])
    if wait is None:
        return f"closed: {repair.outcome}"
    try:
        if failed and repair.state == State.SCHEDULED and cannot_begin(run):
            why = f"it could not be begun in {TRIES} tries, and nothing was changed: {wait.why}"
            lifecycle.finish(repair, State.FAILED, "INTERNAL_ERROR", why)
            return f"closed: {repair.outcome}"
        wait = _ends(run, wait) if failed else wait
        lifecycle.settle(repair, wait=max(clock.scaled(wait.seconds), _least(wait)), why=wait.why)
    except lifecycle.LostFence:
        return "lost the fence"
    return wait.why or "waits"


def _least(wait: Wait) -> timedelta:
    """Real time between two passes, however fast the sandbox: what takes longest is asked about less often."""
    return timedelta(seconds=5 if wait.seconds >= 60 else 1.2 if wait.seconds >= 5 else 0.5)


def _asked(run: Run) -> Wait | None:
    """Carry it on; while AWS cannot be asked, the time-out of the step under way stands still."""
    try:
        wait = _carry_on(run)
    except AwsTrouble as trouble:
        run.forget()
        run.stands()
        return _ends(run, Wait(15, f"AWS does not answer: {trouble}"))
    except Withdrawn as gone:
        untroubled(run)
        return _take(run, _without_word(run, gone))
    except Held as held:
        untroubled(run)
        return Wait(10, held.message)
    if wait is not None:
        run.forget()
        run.goes_on()
        untroubled(run)
    return wait


def _without_word(run: Run, gone: Withdrawn) -> Ask:
    """Its machine stands drained and would do so for ever: the word comes back by nothing but a person."""
    if run.repair.step == "deregister":  # the machine has ended: there is nothing to go back to
        return Ask(gone.message, (leave._AGAIN, leave._choice("leave", "Leave it so")))
    more = "Undo it and decide anew, or try again once the word counts again."
    return Ask(f"Not carried to its end: {gone.message} {more}", (leave._AGAIN, leave._UNDO))


def _ends(run: Run, wait: Wait) -> Wait:
    """A pass that broke off never came to `stuck`: where that lasts, a person is asked all the same."""
    run.forget()
    asks = troubled(run, wait.why)
    return wait if asks is None else _take(run, asks) or wait


def _carry_on(run: Run) -> Wait | None:
    repair = run.repair
    run.close_lost_calls()
    if (why := lifecycle.not_approved(repair)) is not None:
        lifecycle.refuse(repair, why)
    if repair.state == State.SCHEDULED and repair.stop_asked_by:  # while it was put off: nothing was changed
        lifecycle.finish(repair, State.CANCELLED, "CANCELLED", f"{repair.stop_asked_by} asked to stop")
    if repair.state == State.CANCELLED:
        return None
    anew(run)
    if repair.state == State.SCHEDULED:
        if held := _may_start(run):
            return held
        steps = order_of(repair)
        if not steps:
            lifecycle.finish(
                repair, State.FAILED, "NOT_POSSIBLE", f"{repair.action} is not possible for {repair.owner}"
            )
            return None
        if why := lifecycle.start(repair, steps[0]):
            # a unit that comes free is told at once; the others of a pool come back without a word
            return Wait(60 if why.startswith((budget.FULL, budget.OUT_ALREADY)) else 15, why)
        run.values = repair.settings
    if repair.state == State.ASKING:
        if not repair.stop_asked_by or repair.irreversible or repair.step in UNDO:
            return Wait(60)
        lifecycle.begin_undo(repair, f"{repair.stop_asked_by} asked to stop")
    if given := repair.facts.get("answer"):
        answered(run, given)
        if repair.state not in (State.RUNNING, State.UNDOING):
            return Wait(60) if repair.state == State.ASKING else None
    for _ in range(PASSES):
        run.forget()
        wait = _undo_pass(run) if repair.state == State.UNDOING else _step_pass(run)
        if wait is not None or repair.state not in (State.RUNNING, State.UNDOING):
            return wait if repair.state not in (State.ASKING,) else Wait(60)
    return Wait(1)


def _may_start(run: Run) -> Wait | None:
    """Nothing starts on sources that are blind or were blind until just now."""
    if run.repair.action == "DIAGNOSE":
        return None
    if (run.instance.account.account_id, run.instance.region) not in places():
        return Wait(60, "its account or region is no longer configured")
    if not_now := may_begin(run):
        return Wait(not_now.seconds, not_now.why)
    if run.repair.automatic and not _breadth_was_seen(run):
        return Wait(5, "waiting for a look at all instances, so that one cause behind many is seen first")
    if run.repair.action in ("REPLACE", "REBOOT", "RELOCATE") and (ending := why_ending(run.instance, clock.now())):
        return Wait(15, ending)
    reasons = why_blind(run.instance, clock.now())
    return Wait(15, reasons[0]) if reasons else None


def _breadth_was_seen(run: Run) -> bool:
    """A full collection round after the repair was scheduled, and just now, somebody compared all cases and found no
    common cause: what waited for days starts on no look of then."""
    seen, now = Pulse.objects.filter(name="breadth", ok=True).first(), clock.now()
    round_ = max(clock.scaled(60), timedelta(seconds=LEAST_ROUND_S))
    return seen is not None and max(run.repair.opened_at + round_, now - LOOK_COUNTS) <= seen.at <= now


def _step_pass(run: Run) -> Wait | None:
    repair, name = run.repair, run.repair.step
    if repair.stop_asked_by and not repair.irreversible:
        lifecycle.begin_undo(repair, f"{repair.stop_asked_by} asked to stop")
        return None
    if not_now := may_begin(run):
        return _take(run, not_now)
    blocked = _blocked(run) if repair.action != "DIAGNOSE" else None
    if blocked is None:
        result = HANDLERS[name](run)
        return _take(run, stuck(run, result) or result)
    return _take(run, blocked)


def _blocked(run: Run) -> Result | None:
    """What is read before every step, whatever the step: sight, owner, pause tag, the instance itself."""
    if watched := why_watching(run.instance):
        run.stands()
        return Wait(15, watched)
    if (errors := brakes.aws_errors(run.instance)) and not _launch_unbound(run):
        run.stands()
        return Wait(60, errors)  # nothing more is asked of an AWS that fails
    repair, look = run.repair, run.look
    if paused := _paused(run):
        return paused
    if look.gone and repair.step not in INDIFFERENT and not run.calls("TerminateInstances"):
        return None if _launch_unbound(run) else _ended_by_others(run)
    group = look.tags.get("aws:autoscaling:groupName", "")
    owner = repair.owner
    if look.state and not look.gone:
        told = run.instance.owner
        torn = (owner in TOUCHABLE and told not in TOUCHABLE) or (owner == "GROUP" and not group and not look.lifecycle)
        ours_detached = torn and repair.calls.filter(operation="DetachInstances").exists()
        if run.instance.is_self or (owner in TOUCHABLE and told not in TOUCHABLE and not ours_detached):
            why = "healthboard itself runs on it now" if run.instance.is_self else f"Its owner is {told} now"
            return Ask(f"{why}: nothing more is done to it.", (leave._AGAIN, leave._choice("leave", "Leave it so")))
        if owner == "ECS" and (
            told != "ECS" or run.instance.pool is None or run.instance.pool.auto_repair is not False
        ):
            why = "ECS repairs it by itself now" if told == "ECS" else f"Its owner is {told} now"
            return Ask(f"{why}: nothing more is done to it.", (leave._AGAIN, leave._choice("leave", "Leave it so")))
        if owner == "GROUP" and not group and not look.lifecycle and not ours_detached:
            return Ask("Somebody took it out of its Auto Scaling group.", (leave._AGAIN, leave._UNDO))
        if owner in ("TEMPLATE", "PLAIN") and (group or look.lifecycle):
            return Ask("Somebody put it into an Auto Scaling group.", (leave._AGAIN, leave._UNDO))
    return None


def _launch_unbound(run: Run) -> bool:
    """A launch that may have been made is bound first: nothing of ours is left without an owner."""
    return run.repair.step == "launch" and bool(launch.intended(run))


def _paused(run: Run) -> Wait | None:
    by = run.look.paused_by
    return Wait(15, f"Paused by a healthboard:pause tag on the {by}") if by else None


def _ended_by_others(run: Run) -> Result:
    """A group, ECS, Spot or a person ended it meanwhile: a normal outcome."""
    if run.repair.owner == "GROUP" and run.facts.get("decremented") and run.look.group:
        raised = leave.raise_desired(run)  # what stepping aside took off goes back on
        if not isinstance(raised, Done):
            return raised
    if run.repair.owner == "GROUP":
        return End(True, "REPLACED_BY_GROUP", f"its group ended it ({run.look.state}) and replaces it")
    new = run.replacement()
    if new is not None and (new.gone_at is not None or replace.has_ended(run, new)):
        return End(
            True, "INSTANCE_GONE", f"somebody else ended it ({run.look.state}), and what was launched for it, {new}"
        )
    if new is not None:
        return End(True, "REPLACED", f"somebody else ended it; {new} takes its place")
    return End(True, "INSTANCE_GONE", f"somebody else ended it ({run.look.state})")


def _take(run: Run, result: Result) -> Wait | None:
    repair = run.repair
    match result:
        case Done(note) | Skip(note):
            steps = order_of(repair)
            after = steps.index(repair.step) + 1
            if after < len(steps):
                lifecycle.next_step(repair, steps[after], note=note, skipped=isinstance(result, Skip))
                return None
            lifecycle.finish(repair, State.SUCCEEDED, check.outcome(run), note)
            return None
        case Wait():
            return result
        case PutOff(seconds, why):
            if run.facts.get("drained_by_other"):
                leave.heard_again(run)  # who drained it may let it serve meanwhile: nothing is ours any more
            lifecycle.put_off(repair, why)
            return Wait(seconds, why)
        case Ask(why, choices):
            lifecycle.ask(repair, why, offered(repair, choices))
            return Wait(60)
        case Undo(why, outcome):
            if repair.irreversible:
                why = f"{why} – but the irreversible step was taken."
                lifecycle.ask(repair, why, offered(repair, (leave._AGAIN,)))
                return Wait(60)
            lifecycle.begin_undo(repair, why, outcome=outcome)
            return None
        case Back(step, why):
            lifecycle.next_step(repair, step, note=why, skipped=True)
            return None
        case Climb(why):
            return climb(run, why)
        case End(succeeded, outcome, why):
            if not succeeded and opening.touched(repair):
                lifecycle.begin_undo(repair, why, outcome=outcome)
                return None
            lifecycle.finish(repair, State.SUCCEEDED if succeeded else State.FAILED, outcome, why)
            return None
    raise TypeError(result)


def _undo_pass(run: Run) -> Wait | None:
    repair = run.repair
    name = repair.step if repair.step in UNDO and repair.steps.filter(state="RUNNING").exists() else ""
    if not name:
        lifecycle.next_step(repair, UNDO[0])
        return None
    if not opening.touched(repair):
        result: Result = Skip("nothing was changed")
    else:
        result = _paused(run) or HANDLERS[name](run)
        result = stuck(run, result) or result
    match result:
        case Done(note) | Skip(note):
            after = UNDO.index(name) + 1
            if after < len(UNDO):
                lifecycle.next_step(repair, UNDO[after], note=note, skipped=isinstance(result, Skip))
                return None
            outcome, why = repair.facts.get("undo_outcome", ""), repair.facts.get("undo_why", "")
            ended = repair.outcome if repair.outcome == lifecycle.NOT_APPROVED else "CANCELLED"
            lifecycle.finish(repair, State.FAILED if outcome else State.CANCELLED, outcome or ended, why)
            return None
        case Wait():
            return result
        case Ask(why, choices):
            lifecycle.ask(repair, why, offered(repair, choices))
            return Wait(60)
    raise TypeError(result)


def title(step: str) -> str:
    return STEPS[step].title

"""The end that every wait has, also where a step of AWS's never comes to its own."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthboard import clock
from healthboard.fleet import aws_answers, gaps
from healthboard.fleet.seeing import why_blind
from healthboard.repairs import brakes
from healthboard.repairs.recipes import STEPS
from healthboard.repairs.states import State
from workers.repair.results import Ask, Result, Wait
from workers.repair.run import Run
from workers.repair.steps import leave
from workers.repair.trips import SHARE, WINDOW

#: the policy's time-outs of steps, and their defaults
TIME_OUTS = (
    ("drain_timeout_s", 1800),
    ("launch_timeout_s", 1200),
    ("reboot_timeout_s", 1800),
    ("checkpoint_wait_s", 600),
)


#: passes in a row that break off before a repair that has not begun is given up
TRIES = 5


def stuck(run: Run, result: Result) -> Ask | None:
    """No step waits without an end, whatever it waits for (INV8): beyond every time-out of the policy a person is asked.

    Not while a source is blind: that is a breaker's to tell.
    """
    if not isinstance(result, Wait) or run.repair.action == "DIAGNOSE" or run.in_step_for() <= _longest(run):
        return None
    return None if why_blind(run.instance, clock.now()) else _ask(run, result.why)


def troubled(run: Run, why: str) -> Ask | None:
    """As `stuck`, for passes that break off: AWS refuses what only this repair asks for, or healthboard has a fault.

    No time-out of the step runs meanwhile, so this counts by itself, from the step's first pass that broke off. Not
    while a source is blind or AWS fails for the whole place: those have breakers of their own.
    """
    if run.repair.state not in (State.RUNNING, State.UNDOING) or run.step is None:
        return None
    now = clock.now()
    if why_blind(run.instance, now) or _place_fails(run, now):
        untroubled(run)
        return None
    kept = run.facts.get("trouble") or {}
    if kept.get("step") != run.step.number:
        run.remember(trouble={"step": run.step.number, "since": now.isoformat()})
        return None
    since = gaps.counted_from(datetime.fromisoformat(kept["since"]))
    return _ask(run, why) if now - since > _longest(run) else None


def cannot_begin(run: Run) -> bool:
    """A repair that has not begun and whose passes break off, one after the other, for a fault of healthboard's own: True
    once that is no passing trouble. Nothing was changed yet, so it ends, and its case asks a person."""
    tries = (run.facts.get("trouble") or {}).get("tries", 0) + 1
    if tries < TRIES:
        run.remember(trouble={"tries": tries})
    return tries >= TRIES


def untroubled(run: Run) -> None:
    """A pass came to its end, or the trouble is not this repair's: what comes later is counted anew."""
    if run.facts.get("trouble"):
        run.remember(trouble=None)


def _place_fails(run: Run, now: datetime) -> bool:
    if brakes.aws_errors(run.instance):
        return True
    told = aws_answers.since(run.instance.account, run.instance.region, now - WINDOW)
    return told.bad > 0 and told.bad >= SHARE * (told.good + told.bad)


def _longest(run: Run) -> timedelta:
    return max(run.span(name, default) for name, default in TIME_OUTS) * 1.5 + run.span("soak_s", 300)


def _ask(run: Run, why: str) -> Ask:
    undoing = run.repair.state == State.UNDOING
    back = leave._choice("leave", "Leave it as it is") if undoing else leave._UNDO
    choices = (leave._AGAIN,) if run.repair.irreversible and not undoing else (leave._AGAIN, back)
    return Ask(f"{STEPS[run.repair.step].title} does not come to its end: {why or 'nothing is said'}.", choices)

"""The end that every wait has, also where a step of AWS's never comes to its own."""

from __future__ import annotations

from healthboard import clock
from healthboard.fleet.seeing import why_blind
from healthboard.repairs.recipes import STEPS
from healthboard.repairs.states import State
from workers.repair.results import Ask, Result, Wait
from workers.repair.run import Run
from workers.repair.steps import leave

#: the policy's time-outs of steps, and their defaults
TIME_OUTS = (("drain_timeout_s", 1800), ("launch_timeout_s", 1200), ("reboot_timeout_s", 1800))


def stuck(run: Run, result: Result) -> Ask | None:
    """No step waits without an end, whatever it waits for (INV8): beyond every time-out of the policy a person is asked.

    Not while a source is blind: that is a breaker's to tell.
    """
    if not isinstance(result, Wait) or run.repair.action == "DIAGNOSE" or why_blind(run.instance, clock.now()):
        return None
    longest = max(run.span(name, default) for name, default in TIME_OUTS) * 1.5 + run.span("soak_s", 300)
    if run.in_step_for() <= longest:
        return None
    undoing = run.repair.state == State.UNDOING
    back = leave._choice("leave", "Leave it as it is") if undoing else leave._UNDO
    choices = (leave._AGAIN,) if run.repair.irreversible and not undoing else (leave._AGAIN, back)
    return Ask(f"{STEPS[run.repair.step].title} does not come to its end: {result.why or 'nothing is said'}.", choices)

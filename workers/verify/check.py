"""The last step of a repair: is the pool as before, and is the fault gone?"""

from __future__ import annotations

from datetime import timedelta

from healthboard import clock
from healthboard.fleet.seeing import why_blind
from healthboard.policies.reading import GOOD
from workers.repair.results import Ask, Done, Result, Wait
from workers.repair.run import Run
from workers.repair.serving import fabric_starts, why_not_serving

#: never asked sooner, whatever the sandbox's speed: a busy machine's pauses do not shrink with it
LEAST = timedelta(seconds=90)
_AGAIN = {"key": "again", "title": "Check again", "needs": "decide"}


def verify(run: Run) -> Result:
    run.renew()
    if run.facts.get("watch"):
        return Done("replaced by the group")
    problem = _replaced(run) if run.repair.action == "REPLACE" else _mended(run)
    if problem is None:
        return Done(_said(run))
    if reasons := why_blind(run.instance, clock.now()):
        return Wait(5, reasons[0])  # what cannot be seen is no answer, neither good nor bad
    if run.in_step_for() > max(clock.scaled(600), LEAST):
        return Ask(f"Not verified: {problem}", (_AGAIN, {"key": "leave", "title": "Close it", "needs": "decide"}))
    return Wait(5, problem)


def _replaced(run: Run) -> str | None:
    look, new = run.look, run.replacement()
    if look.state not in ("terminated", ""):
        return f"the old machine is {look.state}"
    if look.container is not None and look.ecs_status not in ("INACTIVE", "DEREGISTERING"):
        return "the old machine is still registered with ECS"
    if new is None:
        return "there is no replacement"
    problem = why_not_serving(run, new)
    return f"the replacement {new}: {problem.why}" if problem else None


def _mended(run: Run) -> str | None:
    look = run.look
    if look.container is None or look.connected is not True:
        return "its agent is away"
    if look.ecs_status != "ACTIVE" and not run.facts.get("drained_by_other"):
        return f"ECS shows it as {look.ecs_status}"
    if run.repair.owner == "GROUP" and look.lifecycle != "InService":
        return f"the group shows it as {look.lifecycle}"
    seen = run.reading.assessment
    if seen.verdict not in GOOD:
        return f"its evidence reads {seen.verdict}: {seen.why}"
    return "the fabric of its GPUs has not come up yet" if fabric_starts(run.instance) else None


def _said(run: Run) -> str:
    if run.repair.action != "REPLACE":
        return f"{run.instance} serves again"
    return f"{run.repair.replacement} serves in its place"


def outcome(run: Run) -> str:
    """The word under which a succeeded repair is carried back to its case."""
    if run.facts.get("replaced_by_group"):
        return "REPLACED_BY_GROUP"
    return {"REPLACE": "REPLACED", "REBOOT": "REBOOTED", "RELOCATE": "RELOCATED"}.get(run.repair.action, "DONE")

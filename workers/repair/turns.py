"""Which step comes next: the order of a repair, the next rung of its ladder, and what a person's answer makes of it."""

from __future__ import annotations

from healthboard import clock
from healthboard.policies.reading import GOOD
from healthboard.repairs import budget, lifecycle, opening
from healthboard.repairs.budget import FREE
from healthboard.repairs.models import Repair
from healthboard.repairs.recipes import NEVER_ALONE, recipe, terminate_first, with_waits
from healthboard.repairs.states import State
from workers.repair.results import Choices, Wait
from workers.repair.run import Run
from workers.repair.steps import launch, leave, undo

#: answers that take nothing out of service
ENDS = ("undo", "leave")
#: answers to go on all the same -> what is kept of the question, and under which name for the attempt that follows
ABOUT = {"not_idle": ("busy_then", "not_idle_allowed"), "without_answer": ("called_for", "without_answer")}


def order_of(repair: Repair) -> tuple[str, ...]:
    """The steps of this repair: its recipe, unless a person's answer changed the order."""
    if repair.facts.get("order"):
        return tuple(repair.facts["order"])
    steps = recipe(repair.action, repair.owner, watch=bool(repair.facts.get("watch")))
    if not repair.facts.get("inherited_drain"):
        steps = with_waits(steps, repair.settings)
    return terminate_first(steps) if "terminate_first" in repair.allowed and "terminate" in steps else steps


def climb(run: Run, why: str) -> Wait | None:
    """The next rung of the policy's ladder; a person's own repair, or the last rung, asks."""
    repair = run.repair
    ladder = list(run.values.get("ladder") or [])
    heavier = ladder[ladder.index(repair.action) + 1 :] if repair.action in ladder else []
    next_action = next((a for a in heavier if recipe(a, repair.owner) and a not in NEVER_ALONE), None)
    if next_action and repair.automatic and run.reading.assessment.verdict not in GOOD:
        _change(run, next_action, why)
        return None
    choices = [leave._choice("replace", "Replace it")] if recipe("REPLACE", repair.owner) else []
    lifecycle.ask(repair, why, [*choices, leave._choice("undo", "Return it to service as it is")])
    return Wait(60)


def _change(run: Run, action: str, why: str) -> None:
    steps = recipe(action, run.repair.owner)
    run.remember(order=None, inherited_drain=True)
    lifecycle.change_action(run.repair, action, steps[0], why)


def no_way_back(repair: Repair) -> bool:
    """The machine was given away by an irreversible step, or may have been. After a reboot or a stop it is still there:
    what was undone then is its drain."""
    return repair.irreversible and repair.action not in ("REBOOT", "RELOCATE")


def may_replace(repair: Repair) -> bool:
    """Whether "Replace it" may be chosen: not for an action without a unit of its pool's budget, which never asked whether
    its machine may go. That is asked for by itself, with its own plan."""
    return repair.action not in FREE and bool(recipe("REPLACE", repair.owner))


def offered(repair: Repair, choices: Choices) -> list[dict[str, str]]:
    """What a person may choose here: nothing that this repair or its owner's machines do not know, and no undo while it is
    undone or once there is no way back. To leave the machine to people as it is ends every such wait."""
    known = [c for c in choices if c["key"] != "replace" or may_replace(repair)]
    if repair.state == State.UNDOING or no_way_back(repair):
        known = [c for c in known if c["key"] != "undo"]
    elif repair.action not in FREE:
        return known
    return known if any(c["key"] == "leave" for c in known) else [*known, undo._LEAVE]


def anew(run: Run) -> None:
    """Answered before anything was changed, to go on: it is scheduled anew, since between question and answer may lie
    days. Evidence, policy, budget, breadth and what is to come of the machine are asked as at any start; what the person
    said of what ran there is kept, for just that."""
    repair, given = run.repair, run.facts.get("answer")
    goes_on = repair.state == State.RUNNING and given and given not in ENDS and not repair.stop_asked_by
    if not goes_on or repair.action in budget.FREE or opening.touched(repair):
        return
    if run.facts.get("drained_by_other"):
        leave.heard_again(run)
    asked, kept = ABOUT.get(given, ("", ""))
    told = {kept: run.facts.get(asked)} if kept else {}
    lifecycle.put_off(repair, "answered before anything was changed: it begins anew", answer="", **told)
    run.forget()


def answered(run: Run, given: str) -> None:
    """What a person's answer means for the step under way."""
    repair = run.repair
    run.remember(answer="")
    match given:
        case "leave":
            lifecycle.finish(repair, State.FAILED, "LEFT", "left as it is by a person")
        case "undo" if repair.state == State.RUNNING:
            if no_way_back(repair):  # offered before that was so
                why = "It cannot be undone: the irreversible step was taken."
                lifecycle.ask(repair, why, offered(repair, (leave._AGAIN,)))
            elif repair.irreversible:
                run.remember(order=[*_back(repair), "verify"])
                lifecycle.next_step(repair, order_of(repair)[0], note="returned to service by a person")
            else:
                lifecycle.begin_undo(repair, "a person chose to undo")
        case "wait_longer" | "again":
            lifecycle.next_step(repair, repair.step, note=given.replace("_", " "), skipped=True)
        case "drain_again":
            lifecycle.next_step(repair, "drain", note="drained again by a person", skipped=True)
        case "replace" if not may_replace(repair):  # offered by an earlier release
            why = "Its replacement is not decided here: leave it as it is, then ask for it on the machine's own page."
            lifecycle.ask(repair, why, offered(repair, (leave._AGAIN,)))
        case "replace":
            run.remember(insisted=True)  # evidence that reads good now is what the person saw when choosing
            _change(run, "REPLACE", "chosen by a person")
        case "terminate_first":
            lifecycle.next_step(repair, "tasks", note="terminate first, by a named person", skipped=True)
        case "launch_again":
            launch.another(run)
            lifecycle.next_step(repair, "launch", note="another is launched by a person's word", skipped=True)
        case "reboot_again":
            run.remember(reboot_after=clock.now().isoformat())
            lifecycle.next_step(repair, "reboot", note="rebooted again by a person", skipped=True)
        case "booted":
            steps = order_of(repair)
            lifecycle.next_step(repair, steps[steps.index("boot") + 1], note="confirmed by a person")


def _back(repair: Repair) -> list[str]:
    return ["rejoin", "activate"] if repair.owner == "GROUP" else ["activate"]

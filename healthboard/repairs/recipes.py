"""Which steps carry out which action for which owner, in words. The plan page and the engine read the same table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepWords:
    title: str
    detail: str
    minutes: float  # expected, at speed 1
    changes: bool = False  # makes a changing AWS call
    irreversible: bool = False


STEPS: dict[str, StepWords] = {
    "recheck": StepWords("Check again", "evidence, policy, budget, breakers, pauses and owner", 0),
    "room": StepWords("Prove room", "a replacement can be had, and nothing forbids the termination", 0),
    "keep": StepWords("Keep evidence", "last readings, flight recorder and console output", 0.1),
    "idle": StepWords("Await idleness", "no standalone or protected task, or no job, as the policy says", 0),
    "checkpoint": StepWords("Call the workload", "signed webhook: checkpoint now, then its answer is waited for", 1),
    "drain": StepWords("Drain", "set the container instance to DRAINING: service tasks move", 0.1, changes=True),
    "standby": StepWords("Standby", "EnterStandby: the group starts the replacement at once", 0.2, changes=True),
    "step_aside": StepWords("Step aside", "EnterStandby with decrement, so that the group leaves it alone", 0.2, True),
    "launch": StepWords("Launch", "RunInstances from the same template version", 0.2, changes=True),
    "replacement": StepWords("Await replacement", "registered, connected, GPUs good, soaked", 8),
    "tasks": StepWords("Await tasks", "until every task has left", 3),
    "detach": StepWords("Detach", "DetachInstances from Standby, without decrement", 0.2, changes=True),
    "terminate": StepWords("Terminate", "TerminateInstances on this one instance", 1, True, True),
    "deregister": StepWords("Deregister", "remove the container instance where ECS has not", 0.2, changes=True),
    "reboot": StepWords("Reboot", "RebootInstances on this one instance", 0.1, True, True),
    "boot": StepWords("Await boot", "a new boot id, the agent back", 4),
    "diagnose": StepWords("Diagnose", "the reporter's quick diagnostic on the node", 2),
    "soak": StepWords("Soak", "stays good for the policy's soak time", 5),
    "rejoin": StepWords("Rejoin", "ExitStandby: back into the group", 0.5, changes=True),
    "activate": StepWords("Return", "set the container instance to ACTIVE", 0.1, changes=True),
    "watch": StepWords("Watch", "the group replaces it by itself; nothing is launched or terminated", 8),
    "stop": StepWords("Stop", "StopInstances: instance-store data is lost", 3, True, True),
    "start": StepWords("Start", "StartInstances: another host", 3, changes=True),
    "ask_node": StepWords("Ask the node", "queue diagnose-1 for the reporter", 0.3),
    "verify": StepWords("Verify", "the pool is as before, and the fault is gone", 0.5),
    # taking our own steps back
    "undo_standby": StepWords("Rejoin", "ExitStandby: back into the group", 0.5, changes=True),
    "undo_drain": StepWords("Undo drain", "our own DRAINING back to ACTIVE", 0.1, changes=True),
    "undo_surplus": StepWords("Drain surplus", "drain the instance that this repair launched", 2, changes=True),
    "undo_launch": StepWords("Remove surplus", "terminate the instance that this repair launched", 1, changes=True),
}

_OUT = ("recheck", "room", "keep", "drain")

RECIPES: dict[tuple[str, str], tuple[str, ...]] = {
    ("REPLACE", "GROUP"): (
        *_OUT, "standby", "replacement", "tasks", "detach", "terminate", "deregister", "verify",
    ),
    ("REPLACE", "GROUP_WATCH"): ("recheck", "keep", "drain", "watch", "deregister", "verify"),
    ("REPLACE", "TEMPLATE"): (*_OUT, "launch", "replacement", "tasks", "terminate", "deregister", "verify"),
    ("REBOOT", "GROUP"): (
        *_OUT, "step_aside", "tasks", "reboot", "boot", "diagnose", "soak", "rejoin", "activate", "verify",
    ),
    ("REBOOT", "TEMPLATE"): (*_OUT, "tasks", "reboot", "boot", "diagnose", "soak", "activate", "verify"),
    ("REBOOT", "PLAIN"): (*_OUT, "tasks", "reboot", "boot", "diagnose", "soak", "activate", "verify"),
    ("RELOCATE", "PLAIN"): (
        *_OUT, "tasks", "stop", "start", "boot", "diagnose", "soak", "activate", "verify",
    ),
    ("DRAIN", "*"): ("recheck", "drain", "tasks"),
    ("RETURN", "*"): ("activate",),
    ("DIAGNOSE", "*"): ("ask_node",),
}  # fmt: skip
RECIPES[("RELOCATE", "TEMPLATE")] = RECIPES[("RELOCATE", "PLAIN")]

UNDO = ("undo_standby", "undo_drain", "undo_surplus", "undo_launch")

#: whatever a policy names: it takes the machine away before another one serves
NEVER_ALONE = ("RELOCATE",)
#: who may be acted on at all, and how
TOUCHABLE = ("GROUP", "TEMPLATE", "PLAIN")
#: Managed Instances that ECS does not repair by itself: what a named person may ask for, and no more
BY_WORD = ("DRAIN", "RETURN")


def recipe(action: str, owner: str, *, watch: bool = False) -> tuple[str, ...]:
    """The steps, or an empty tuple where this owner's instances cannot be treated so."""
    if owner not in TOUCHABLE:
        # Managed Instances with auto repair off: DRAINING by a person's word at most, and back; a look never harms
        return RECIPES[(action, "*")] if action == "DIAGNOSE" or (owner == "ECS" and action in BY_WORD) else ()
    key = (action, "GROUP_WATCH" if watch and owner == "GROUP" and action == "REPLACE" else owner)
    return RECIPES.get(key) or RECIPES.get((action, "*"), ())


def with_waits(steps: tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, ...]:
    """With what these settings want before the drain: an idle machine, and the workload's word."""
    if "drain" not in steps:
        return steps
    waits = [name for name, wanted in (
        # what its group is about to take away, idle or not, is not waited for
        ("idle", values.get("wait_for_idle", "never") != "never" and "watch" not in steps), ("checkpoint", bool(values.get("checkpoint"))),
    ) if wanted]  # fmt: skip
    at = steps.index("drain")
    return (*steps[:at], *waits, *steps[at:])


def terminate_first(steps: tuple[str, ...]) -> tuple[str, ...]:
    """The same steps with the end of the old machine before its replacement, as a named person may allow."""
    after = [s for s in ("launch", "replacement", "verify") if s in steps]
    return (*(s for s in steps if s not in after), *after)


def minutes(steps: tuple[str, ...]) -> float:
    return round(sum(STEPS[s].minutes for s in steps), 1)

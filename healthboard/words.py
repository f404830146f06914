"""The words in which pages, exports and messages speak of what the tables hold. No Django, no queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from healthboard.diagnosis.signals import Action


@dataclass(frozen=True, slots=True)
class Mark:
    """How a value is shown: shape and word always, colour on top. `tone` is a CSS class, `icon` a symbol's name."""

    word: str
    tone: str
    icon: str
    hint: str = ""


VERDICTS = {
    "HARDWARE": Mark("Hardware", "bad", "octagon", "A clear hardware failure"),
    "CORRELATED": Mark("Correlated", "many", "links", "Many at once with something in common"),
    "AMBIGUOUS": Mark("Ambiguous", "doubt", "diamond", "Sources disagree or evidence is partial: a person decides"),
    "UNKNOWN": Mark("Unknown", "blind", "question", "We cannot see"),
    "WATCH": Mark("Watch", "watch", "eye", "A symptom that needs no decision now"),
    "WORKLOAD": Mark("Workload", "app", "square", "The application's own fault; the machine is fine"),
    "HEALTHY": Mark("Healthy", "good", "check", "Nothing wrong"),
}
CHECKS = {
    "OK": Mark("OK", "good", "check"),
    "IMPAIRED": Mark("Impaired", "bad", "octagon"),
    "INSUFFICIENT_DATA": Mark("No data", "blind", "question"),
    "INITIALIZING": Mark("Initializing", "watch", "clock"),
}
STAGES = {
    "waiting": Mark("Waits for a person", "doubt", "hand"),
    "asking": Mark("Repair asks", "doubt", "hand"),
    "held": Mark("Held by a breaker", "many", "lock"),
    "snoozed": Mark("Snoozed", "blind", "clock"),
    "observed": Mark("Observed only", "blind", "eye"),
    "scheduled": Mark("Repair scheduled", "run", "clock"),
    "running": Mark("Repairing", "run", "run"),
    "undoing": Mark("Undoing", "run", "undo"),
    "decided": Mark("Decided", "run", "clock"),
    "closed": Mark("Closed", "good", "check"),
    "none": Mark("In service", "plain", "dot"),
    "gone": Mark("Gone", "blind", "dot"),
}
CASE_STATES = {
    "WAITING": STAGES["waiting"],
    "OBSERVED": STAGES["observed"],
    "HELD": STAGES["held"],
    "SNOOZED": STAGES["snoozed"],
    "DECIDED": STAGES["decided"],
    "CLOSED": STAGES["closed"],
}
REPAIR_STATES = {
    "SCHEDULED": Mark("Scheduled", "run", "clock"),
    "RUNNING": Mark("Running", "run", "run"),
    "ASKING": Mark("Asks a person", "doubt", "hand"),
    "UNDOING": Mark("Undoing", "run", "undo"),
    "SUCCEEDED": Mark("Verified", "good", "check"),
    "FAILED": Mark("Failed", "bad", "octagon"),
    "CANCELLED": Mark("Cancelled", "blind", "undo"),
}
STEP_STATES = {
    "RUNNING": Mark("under way", "run", "run"),
    "DONE": Mark("done", "good", "check"),
    "SKIPPED": Mark("skipped", "blind", "dot"),
    "FAILED": Mark("failed", "bad", "octagon"),
    "PLANNED": Mark("to come", "plain", "dot"),
}
GPU_STATES = {
    "ok": Mark("OK", "good", "check"),
    "lost": Mark("Lost", "bad", "octagon"),
    "missing": Mark("Missing", "bad", "octagon"),
    "error": Mark("Error", "bad", "octagon"),
    "reset_required": Mark("Reset required", "doubt", "diamond"),
}
JOB_STATES = {
    "still": Mark("Stands still", "bad", "stop", "It lost tasks with a fault on one of its machines"),
    "risk": Mark("Needs a sick machine", "doubt", "links", "It runs on a machine with an open case"),
    "running": Mark("Running", "good", "check"),
    "ended": Mark("Ended", "plain", "dot", "It has no tasks left, and no fault on its machines came with that"),
}
KINDS = {
    "job": JOB_STATES,
    "verdict": VERDICTS,
    "check": CHECKS,
    "stage": STAGES,
    "case": CASE_STATES,
    "repair": REPAIR_STATES,
    "step": STEP_STATES,
    "gpu": GPU_STATES,
}

ACTIONS = {
    Action.NONE: "Do nothing",
    Action.NOTIFY_WORKLOAD: "Tell the workload's owner",
    Action.WATCH: "Watch",
    Action.DIAGNOSE: "Run diagnostics",
    Action.REBOOT: "Drain and reboot",
    Action.REPLACE: "Drain and replace",
    Action.HOLD: "Hold",
    Action.DRAIN: "Drain",
    Action.RETURN: "Return to service",
    Action.RELOCATE: "Stop and start on another host",
}
RESOLUTIONS = {
    "REPAIRED": "Repaired and verified",
    "REPLACED_BY_GROUP": "Replaced by the group",
    "REPLACED_BY_ECS": "Replaced by ECS",
    "CLEARED": "The evidence cleared by itself",
    "DISMISSED": "Dismissed",
    "INSTANCE_GONE": "The instance is gone",
    "RELEASED": "Released",
    "MERGED": "Merged into another case",
    "DONE": "Done as asked",
    "WITHDRAWN": "Not carried out",
}
#: resolutions after which the machine (or its replacement) was good again
HELPED = ("REPAIRED", "REPLACED_BY_GROUP", "REPLACED_BY_ECS")
VENDORS = {
    "nvidia": "NVIDIA",
    "ecs": "Amazon ECS",
    "eks": "Amazon EKS",
    "gpud": "gpud",
    "nvsentinel": "NVSentinel",
    "healthboard": "healthboard",
}
OWNERS = {
    "GROUP": "Auto Scaling group",
    "TEMPLATE": "launch template",
    "PLAIN": "nobody",
    "ECS": "ECS Managed Instances",
    "BATCH": "AWS Batch",
    "OTHER": "another controller",
    "UNKNOWN": "unknown",
}
MODES = {
    "auto": "by itself",
    "ask": "asks a person",
    "observe": "observes only",
}


def action(value: str) -> str:
    """``REPLACE`` -> ``Drain and replace``; an unknown action is shown as it is."""
    return ACTIONS.get(value, value.replace("_", " ").capitalize())


def span(seconds: float) -> str:
    """A length of time, one unit, as on-call people say it: ``40 s``, ``12 min``, ``3 h``, ``5 d``."""
    seconds = abs(seconds)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} d"


def ago(at: datetime, now: datetime) -> str:
    seconds = (now - at).total_seconds()
    return f"{span(seconds)} ago" if seconds >= 0 else f"in {span(seconds)}"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 task``, ``3 tasks``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listing(parts: list[str], most: int = 3) -> str:
    """``a, b and c``; the rest as a number."""
    if len(parts) > most:
        parts = [*parts[:most], f"{len(parts) - most} more"]
    return parts[0] if len(parts) == 1 else " and ".join([", ".join(parts[:-1]), parts[-1]]) if parts else ""


def stopped(word: str, state: str) -> str:
    """What it came to that a repair was to stop, by its state then: it had not begun, or it takes back what it did."""
    if state == "CANCELLED":
        return f"{word}: nothing was changed."
    return "It had begun: it stops after this step, and what it did is undone."

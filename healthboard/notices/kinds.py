"""What there is to be told of: how grave it is, and what it does to the matter (thread) that it belongs to.

One table for the outbox, the targets' form, the senders and the documentation. No Django here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SEVERITIES = ("info", "warning", "critical")
OPERATORS = "operators"


class Event(StrEnum):
    """What a message does to its thread, in PagerDuty's words."""

    TRIGGER = "trigger"  # it began, or goes on: somebody should look
    ACKNOWLEDGE = "acknowledge"  # somebody, or a policy, has taken it up
    RESOLVE = "resolve"  # it is over


@dataclass(frozen=True, slots=True)
class Kind:
    title: str
    severity: str
    event: Event = Event.TRIGGER


KINDS: dict[str, Kind] = {
    "case_waiting": Kind("A case waits for a person", "warning"),
    "case_expiring": Kind("A question is about to expire", "critical"),
    "case_expired": Kind("Nobody answered in time", "critical"),
    "case_decided": Kind("A case was decided", "info", Event.ACKNOWLEDGE),
    "case_held": Kind("A case is held by a breaker", "info", Event.ACKNOWLEDGE),
    "case_closed": Kind("A case was closed", "info", Event.RESOLVE),
    "second_person": Kind("Something asked for wants a second person", "warning"),
    "verify_failed": Kind("A repair could not be verified", "critical"),
    "repair_failed": Kind("A repair failed", "critical"),
    "repair_asks": Kind("A repair waits for a person", "warning"),
    "repair_answered": Kind("A repair was answered", "info", Event.ACKNOWLEDGE),
    "repair_ended": Kind("A repair that had asked ended", "info", Event.RESOLVE),
    "breaker": Kind("A breaker tripped", "critical"),
    "breaker_released": Kind("A breaker was released", "info", Event.RESOLVE),
    "storm": Kind("Many show the same at once; nothing is held", "warning"),
    "blind": Kind("A source went blind", "critical"),
    "sees": Kind("All sources see again", "info", Event.RESOLVE),
    "invariant": Kind("An invariant is broken", "critical"),
    "invariant_seen": Kind("A broken invariant was acknowledged", "info", Event.ACKNOWLEDGE),
    "invariant_holds": Kind("An invariant holds again", "info", Event.RESOLVE),
    "restored": Kind("The database was put back", "critical"),
    "stopped": Kind("The stop switch was thrown", "critical"),
    "resumed": Kind("The stop switch was released", "info", Event.RESOLVE),
    "observing": Kind("Acting was switched off", "warning"),
    "acting": Kind("Acting was switched on", "info", Event.RESOLVE),
    "workload": Kind("An application's own fault, for its owner", "info"),
    "test": Kind("A test", "info"),
}
#: what a target may choose from; a test reaches its target whatever was chosen
CHOICES = [(name, kind.title) for name, kind in KINDS.items() if name != "test"]


def rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0

"""States of a case and its legal moves. Why it closed is kept apart from the state, as `resolution`."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    WAITING = "WAITING"  # for a person
    OBSERVED = "OBSERVED"  # nothing will be done: policy observes, or the owner is not ours to touch
    HELD = "HELD"  # a member of a correlated case, held by its breaker
    SNOOZED = "SNOOZED"
    DECIDED = "DECIDED"  # a repair is scheduled or running
    CLOSED = "CLOSED"


OPEN = (State.WAITING, State.OBSERVED, State.HELD, State.SNOOZED, State.DECIDED)

MOVES: dict[State, tuple[State, ...]] = {
    State.WAITING: (State.OBSERVED, State.HELD, State.SNOOZED, State.DECIDED, State.CLOSED),
    State.OBSERVED: (State.WAITING, State.HELD, State.SNOOZED, State.DECIDED, State.CLOSED),
    State.HELD: (State.WAITING, State.OBSERVED, State.DECIDED, State.CLOSED),
    State.SNOOZED: (State.WAITING, State.OBSERVED, State.HELD, State.DECIDED, State.CLOSED),
    State.DECIDED: (State.WAITING, State.OBSERVED, State.HELD, State.CLOSED),
    State.CLOSED: (),
}


class Resolution(StrEnum):
    REPAIRED = "REPAIRED"
    REPLACED_BY_GROUP = "REPLACED_BY_GROUP"
    REPLACED_BY_ECS = "REPLACED_BY_ECS"
    CLEARED = "CLEARED"  # the evidence cleared by itself
    DISMISSED = "DISMISSED"
    INSTANCE_GONE = "INSTANCE_GONE"  # terminated by somebody else
    RELEASED = "RELEASED"  # a correlated case whose breaker a person released
    DONE = "DONE"  # asked for by hand, and carried out
    WITHDRAWN = "WITHDRAWN"  # asked for by hand, and taken back, refused or not answered
    MERGED = "MERGED"  # its members became one correlated case, or it was a victim of another

"""States of a repair and its legal moves; `lifecycle.move` is a conditional UPDATE along this table."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    SCHEDULED = "SCHEDULED"  # undo time, maintenance window, budget, breaker: nothing changed yet
    RUNNING = "RUNNING"  # steps are being taken
    ASKING = "ASKING"  # stands still and waits for a person
    UNDOING = "UNDOING"  # our own drain and Standby are taken back
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"  # nothing had been changed, or all was undone


OPEN = (State.SCHEDULED, State.RUNNING, State.ASKING, State.UNDOING)
CLOSED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)

MOVES: dict[State, tuple[State, ...]] = {
    State.SCHEDULED: (State.RUNNING, State.CANCELLED, State.FAILED),
    # back to SCHEDULED: put off before anything was changed
    State.RUNNING: (State.SCHEDULED, State.ASKING, State.UNDOING, State.SUCCEEDED, State.FAILED),
    State.ASKING: (State.RUNNING, State.UNDOING, State.SUCCEEDED, State.FAILED),
    State.UNDOING: (State.CANCELLED, State.FAILED, State.ASKING),
    State.SUCCEEDED: (),
    State.FAILED: (),
    State.CANCELLED: (),
}

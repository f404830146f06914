"""One exception per refusal, each with one HTTP status and a message that says what to do next."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    status = 400

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class Invalid(Refusal):
    """The request itself is incomplete or contradictory."""

    status = 422


class NotAllowed(Refusal):
    """The person lacks the role, the scope or a recent log-in."""

    status = 403


class NotFound(Refusal):
    status = 404


class Changed(Refusal):
    """Evidence or plan changed since it was shown; `details["changes"]` lists sentences of what changed."""

    status = 409


class AlreadyDecided(Refusal):
    """Somebody, or the policy, was first; `details["decision"]` tells who."""

    status = 409


class Closed(Refusal):
    """The case or repair is over, or the moment for this has passed."""

    status = 409


class Held(Refusal):
    """A stop switch, breaker, pause, budget, owner or missing room stands against it."""

    status = 409


class Withdrawn(Held):
    """The word on which the irreversible step rests holds no more, and that passes by nothing but a person."""

"""Who does something: a person, or a named part of the system. Passed explicitly; there is no thread-local user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Actor:
    name: str
    via: str  # web, api, admin, command, policy, system
    user: Any = None  # the Django user, None for the system
    request_id: str = ""
    recent: bool = False  # the log-in is not older than 15 minutes
    token: Any = None  # the API token that was shown, of `people.models`

    @property
    def is_person(self) -> bool:
        return self.user is not None


def system(name: str) -> Actor:
    """A part of the system, such as ``policy`` or ``worker``."""
    return Actor(name=f"healthboard:{name}", via="system")


POLICY = system("policy")
WORKER = system("worker")
EVIDENCE = system("evidence")
CLOCK = system("clock")

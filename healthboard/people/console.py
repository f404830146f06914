"""Who acts when a command is run, and what it says where there is no database."""

from __future__ import annotations

import getpass

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.db import DatabaseError

from healthboard.people.actors import Actor


def named(username: str) -> Actor:
    """A command under a person's name; sitting at the machine counts as a recent log-in."""
    user = get_user_model().objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"there is no user {username}", returncode=2)
    return Actor(name=user.get_username(), via="command", user=user, recent=True)


def operating() -> Actor:
    """Whoever has a shell on the machine, by the operating system's name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return Actor(name=f"shell:{name}", via="command")


def not_ready(error: DatabaseError) -> CommandError:
    """In one line. Without an installation's settings a command finds the sandbox's database, and says so: whoever runs one
    in an incident must not take that for the outage."""
    reason = (str(error).strip().splitlines() or ["unknown"])[0]
    here = ""
    if settings.SANDBOX:
        here = (
            f". HEALTHBOARD_MODE is sandbox, its home {settings.HOME}; how a command is run in an installation: "
            "docs/install/README.md, Commands"
        )
    return CommandError(f"the database is not ready: {reason}{here}", returncode=2)

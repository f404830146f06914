"""Who acts when a command is run."""

from __future__ import annotations

import getpass

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

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

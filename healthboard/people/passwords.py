"""Passwords that are easy to guess of this program, made of its own words or of the person's name; and those that
somebody else chose, which are good for a log-in and for choosing another, and not for long."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError

from healthboard import clock
from healthboard.people.models import GivenPassword

#: in a session: nothing but a new password can be done in it
MUST = "must_choose_password"
#: so long a password that somebody else chose lets its person in
GIVEN_LIVES = timedelta(days=7)

#: what a password may hold, but not be made of
WORDS = (
    "healthboard", "password", "passwort", "amazon", "nvidia", "elastic", "container", "instance", "cluster", "operator",
    "approver", "viewer", "admin", "welcome", "changeme", "letmein", "training", "inference", "hopper", "blackwell",
)  # fmt: skip
#: letters that must be left without them
LEAST = 4


class OwnWords:
    def validate(self, password: str, user: Any = None) -> None:
        left, names = password.lower(), (user and user.get_username(), user and user.last_name)
        for word in (*WORDS, *(name.lower() for name in names if name and len(name) > 2)):
            left = left.replace(word, "")
        if len(re.sub(r"[\W\d_]", "", left)) < LEAST and len(left) < len(password):
            raise ValidationError(self.get_help_text(), code="own_words")

    def get_help_text(self) -> str:
        return "A password is not made of your name and of words of this program with some digits added."


class OwnPassword(PasswordChangeForm):
    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if data.get("old_password") and data.get("old_password") == data.get("new_password1"):
            self.add_error("new_password1", "Choose another one than before.")
        return data


def given(user: Any) -> None:
    """An admin has just set this person's password, and knows it."""
    GivenPassword.objects.update_or_create(user=user, defaults={"at": clock.now()})


def chosen(user: Any) -> None:
    GivenPassword.objects.filter(user=user).delete()


def must_choose(user: Any) -> bool:
    """Whether the person has a password that somebody else knows. Raises ValidationError where that is too old to let
    them in."""
    row = GivenPassword.objects.filter(user=user).first()
    if row is not None and clock.now() - row.at > GIVEN_LIVES:
        raise ValidationError("The password that you were given is too old: ask an admin for another one.")
    return row is not None

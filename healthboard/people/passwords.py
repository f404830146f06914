"""Passwords that are easy to guess of this program: made of its own words, or of the person's name."""

from __future__ import annotations

import re
from typing import Any

from django.core.exceptions import ValidationError

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

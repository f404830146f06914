"""The log-ins of the sandbox. They do not exist in aws mode."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.db import transaction

from healthboard.audit.record import record
from healthboard.people.actors import system
from healthboard.people.models import Grant, Role


@transaction.atomic
def ensure_sandbox_people(password: str) -> list[str]:
    """Users ``viewer``, ``operator``, ``approver`` and ``admin`` with that password and the role of their name."""
    if not settings.SANDBOX:
        raise RuntimeError("the sandbox's log-ins exist in sandbox mode only")
    names, hashed = [], ""
    for role in Role:
        name = str(role)
        user, new = get_user_model().objects.get_or_create(username=name)
        # hashing is slow on purpose, and they share one password: it is hashed, or compared with its hash, once
        if not hashed and not new and user.check_password(password):
            hashed = user.password
        hashed = hashed or make_password(password)
        user.password = hashed
        user.is_active, user.is_superuser, user.is_staff = True, False, role == Role.ADMIN
        user.save()
        _, granted = Grant.objects.get_or_create(user=user, role=role, account=None, region="", pool="")
        if new or granted:
            record("people.made", f"user:{user.pk}", f"sandbox log-in {name}", actor=system("setup"))
        names.append(name)
    return names

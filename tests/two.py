"""What takes two people, done by two: asked for by one, confirmed by an approver of the tests' own."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from healthboard.cases import second as cases
from healthboard.people.actors import Actor
from healthboard.people.models import Request
from healthboard.repairs import second as repairs
from tests import factories


def somebody(role: str = "approver", **more: Any) -> Actor:
    """One person per role, who is nobody else in the tests."""
    name = f"other-{role}"
    user = get_user_model().objects.filter(username=name).first() or factories.person(role, name)
    return factories.actor(user, **more)


def release_case(pk: int, *, actor: Actor, reason: str) -> Request:
    return cases.confirm(cases.ask_release(pk, actor=actor, reason=reason).pk, actor=somebody())


def release_breaker(pk: int, actor: Actor, reason: str) -> Request:
    return cases.confirm(repairs.ask_release(pk, actor=actor, reason=reason).pk, actor=somebody())


def answer(pk: int, *, actor: Actor, choice: str, reason: str) -> Request:
    """`actor` confirms what an operator asks for."""
    asked = repairs.ask_answer(pk, actor=somebody("operator"), choice=choice, reason=reason)
    return cases.confirm(asked.pk, actor=actor)

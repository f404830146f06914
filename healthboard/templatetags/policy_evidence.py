"""What the policy form shows of the layers above it: a template asks, so that policies need not know of cases."""

from __future__ import annotations

from typing import Any

from django import template

from healthboard.cases import precedents
from healthboard.people import access

register = template.Library()


@register.simple_tag
def code_evidence(request: Any, policy: Any) -> list[precedents.OfCode]:
    """Per code, what was done and what it came to, among the cases that the person sees."""
    return precedents.of_policy(access.seeing(request.user), policy or None)

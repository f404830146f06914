"""A small reading of IAM's rules: what some policies say of one action on one resource. Whatever it does not know, it refuses.

Explicit deny before allow before silence; negated operators hold where the key is absent, all others do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "aws"
Statement = dict[str, Any]
Context = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Request:
    action: str
    resource: str = "*"
    context: dict[str, Any] = field(default_factory=dict)


def policy(name: str) -> list[Statement]:
    """The statements of a shipped policy."""
    return json.loads((FOLDER / f"{name}.json").read_text())["Statement"]


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def allowed(statements: Iterable[Statement], request: Request) -> bool:
    matching = [one for one in statements if _matches(one, request)]
    if any(one["Effect"] == "Deny" for one in matching):
        return False
    return any(one["Effect"] == "Allow" for one in matching)


def _matches(one: Statement, request: Request) -> bool:
    assert set(one) <= {"Sid", "Effect", "Action", "Resource", "Condition"}, one
    if not any(_like(pattern.lower(), request.action.lower()) for pattern in listed(one["Action"])):
        return False
    if not any(_like(pattern, request.resource) for pattern in listed(one["Resource"])):
        return False
    return all(
        _holds(operator, listed(wanted), request.context.get(key))
        for operator, keys in one.get("Condition", {}).items()
        for key, wanted in keys.items()
    )


def _holds(operator: str, wanted: list[str], found: str | list[str] | None) -> bool:
    if operator == "Null":
        return (found is None) == (wanted == ["true"])
    if operator == "StringNotEquals":
        return found is None or found not in wanted
    if found is None:
        return False
    assert isinstance(found, str)
    if operator in ("StringEquals", "Bool"):
        return found in wanted
    if operator in ("StringLike", "ArnLike", "ArnEquals"):
        return any(_like(pattern, found) for pattern in wanted)
    raise AssertionError(f"{operator} is not known here")


def _like(pattern: str, text: str) -> bool:
    return _pattern(pattern).fullmatch(text) is not None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in text), re.DOTALL)


def actions(statements: Iterable[Statement], effect: str = "Allow") -> list[str]:
    return [action for one in statements if one["Effect"] == effect for action in listed(one["Action"])]

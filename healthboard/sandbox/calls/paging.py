"""Paging and filters as the services do them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from healthboard.sandbox.protocol.errors import AwsError

T = TypeVar("T")


def page(items: Sequence[T], token: str | None, size: int, bad_token: AwsError) -> tuple[list[T], str | None]:
    """(this page, token of the next or None)."""
    start = 0
    if token:
        try:
            text = base64.urlsafe_b64decode(token.encode()).decode()
            name, _, number = text.partition(":")
            start = int(number)
            if name != "page" or start < 0:
                raise ValueError
        except ValueError:
            raise bad_token from None
    end = start + size
    following = base64.urlsafe_b64encode(f"page:{end}".encode()).decode() if end < len(items) else None
    return list(items[start:end]), following


def ec2_page(
    p: dict[str, Any], items: Sequence[T], ids: bool, *, low: int = 5, high: int = 1000
) -> tuple[list[T], str | None]:
    """EC2's rules: MaxResults between `low` and `high`, and never together with ids."""
    size = p.get("MaxResults")
    if size is not None:
        if ids:
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        if not low <= size <= high:
            raise AwsError(
                "InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid. Expecting a value "
                f"between {low} and {high}."
            )  # fmt: skip
    return page(items, p.get("NextToken"), size or high, AwsError("InvalidNextToken", "The token is not valid"))


def ec2_filter(
    p: dict[str, Any], items: list[T], fields: dict[str, Callable[[T], Any]], tags: Callable[[T], dict[str, str]]
) -> list[T]:
    """Filters are ANDed, the values of one ORed, ``*`` and ``?`` are wildcards. A field may answer a list."""
    for spec in p.get("Filters") or []:
        name, values = spec.get("Name", ""), [str(v) for v in spec.get("Values") or []]
        if name.startswith("tag:"):
            key = name[4:]
            items = [i for i in items if key in tags(i) and _match(tags(i)[key], values)]
        elif name == "tag-key":
            items = [i for i in items if any(_match(k, values) for k in tags(i))]
        elif name in fields:
            items = [i for i in items if _match(fields[name](i), values)]
        else:
            raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return items


def _match(actual: Any, patterns: list[str]) -> bool:
    options = actual if isinstance(actual, list) else [actual]
    return any(fnmatchcase(_text(o), pattern) for o in options if o is not None for pattern in patterns)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def tag_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": k, "Value": v} for k, v in tags.items()]


def ecs_tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": k, "value": v} for k, v in tags.items()]

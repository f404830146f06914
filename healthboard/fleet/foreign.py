"""Instances that a person may not see are not named to them, wherever a row or a sentence names some: they are counted.

A group case holds members of several pools, and a sentence may name any of them. Everything that leaves for a person
(API, exports, bundles, hand-over, pages) goes through here with `access.seeing` of that person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass, replace
from typing import Any

from django.db.models import Q, QuerySet

from healthboard import words
from healthboard.fleet.models import Instance

See = Callable[..., QuerySet]

_ID = r"\bi-[0-9a-f]{8,17}\b"
_ONE = re.compile(_ID)
#: names that stand in a row in a sentence
_ROW = re.compile(rf"{_ID}(?:, {_ID})*")
#: ids that are asked for at once
_MOST = 2000


def plain(see: See, value: Any) -> Any:
    """A value of dicts, lists and texts without the names that the person may not see.

    A list of ids loses them, a text that is nothing but such an id becomes empty, and a sentence counts them. At most
    one query for each 2,000 ids, none for a person who sees everything.
    """
    if sees_all(see):
        return value
    hidden = unseen(see, set(_named(value)))
    return _without(value, hidden) if hidden else value


def sees_all(see: See) -> bool:
    """True for a person with a grant that has no scope: nothing is hidden from them, and nothing need be looked for."""
    every = Instance.objects.all()
    return see(every) is every


def rows(see: See, found: Iterable[Any], *columns: str) -> list[Any]:
    """Rows (models, which are not to be saved afterwards, or dataclasses) with `plain` values in these columns."""
    every = list(found)
    if sees_all(see):
        return every
    told = plain(see, [[getattr(row, name) for name in columns] for row in every])
    return [_with(row, dict(zip(columns, values, strict=True))) for row, values in zip(every, told, strict=True)]


def unseen(see: See, ids: set[str]) -> set[str]:
    """Those of these EC2 ids that we know and the person may not see."""
    hidden: set[str] = set()
    every = sorted(ids)
    for start in range(0, len(every), _MOST):
        known = Instance.objects.filter(instance_id__in=every[start : start + _MOST])
        seen = see(known)
        if seen is known:
            return set()
        marked = list(known.annotate(seen=Q(pk__in=seen.values("pk"))).values_list("instance_id", "seen"))
        hidden |= {name for name, _ in marked} - {name for name, seen in marked if seen}
    return hidden


def _named(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from _ONE.findall(value)
        case dict():
            for name, one in value.items():
                yield from _named(name)
                yield from _named(one)
        case list() | tuple():
            for one in value:
                yield from _named(one)


def _without(value: Any, hidden: set[str]) -> Any:
    match value:
        case str():
            return "" if value in hidden else _ROW.sub(lambda found: _counted(found[0], hidden), value)
        case dict():
            return {name: _without(one, hidden) for name, one in value.items() if name not in hidden}
        case list() | tuple():
            return [_without(one, hidden) for one in value if not (isinstance(one, str) and one in hidden)]
    return value


def _counted(named: str, hidden: set[str]) -> str:
    """``i-a, i-b and 3 others outside your scope``; where none is seen, only how many there are."""
    ids = named.split(", ")
    seen = [name for name in ids if name not in hidden]
    left = len(ids) - len(seen)
    if not left:
        return named
    if not seen:
        return "an instance outside your scope" if left == 1 else f"{words.count(left, 'instance')} outside your scope"
    return f"{', '.join(seen)} and {left} {'other' if left == 1 else 'others'} outside your scope"


def _with(row: Any, values: dict[str, Any]) -> Any:
    if is_dataclass(row) and not isinstance(row, type):
        return replace(row, **values)
    for name, value in values.items():
        setattr(row, name, value)
    return row

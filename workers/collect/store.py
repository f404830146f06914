"""Rows of what was told, written only where something changed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from django.db import IntegrityError, OperationalError, transaction
from django.db.models import Model

from healthboard.fleet import heads
from healthboard.fleet.models import Account, Instance

PAUSE_TAG = "healthboard:pause"
MANY = 50
TRIES = 4
Result = TypeVar("Result")
#: the same tag on the container instance, kept among the instance's tags
ECS_PAUSE_TAG = f"ecs:{PAUSE_TAG}"


def settle(account: Account, write: Callable[[], Result]) -> Result:
    """Run `write` in one transaction; the rounds of one account write in turn, so that they lock rows in one order.

    What others write at the same moment (a repair that binds the instance it launched) may still collide with it:
    a round is idempotent, so it is simply written again.
    """
    for left in range(TRIES, 0, -1):
        try:
            with transaction.atomic():
                Account.objects.select_for_update(no_key=True).get(pk=account.pk)
                return write()
        except (IntegrityError, OperationalError):
            if left == 1:
                raise
            time.sleep(random.uniform(0.05, 0.3))
    raise AssertionError("unreachable")


def account_of(account_id: str) -> Account:
    return Account.objects.get_or_create(account_id=account_id)[0]


def tags_of(item: Mapping[str, Any]) -> dict[str, str]:
    """Tags of any service as a dict; EC2 and Auto Scaling spell Key, ECS spells key."""
    rows = item.get("Tags") or item.get("tags") or []
    found = {}
    for row in rows:
        key = row.get("Key") or row.get("key")
        if key:
            found[heads.text(key, 200)] = heads.text(row.get("Value", row.get("value")) or "", 300)
    return found


def paused(tags: Mapping[str, str]) -> bool:
    """Whatever its value, the tag pauses: a stop that somebody set is never argued with."""
    return PAUSE_TAG in tags or ECS_PAUSE_TAG in tags


def tail(arn: Any) -> str:
    """The last part of an ARN."""
    return str(arn or "").rsplit("/", 1)[-1]


def assign(row: Model, values: Mapping[str, Any]) -> set[str]:
    """Set what differs and give the names of it. Text is cut to what its column takes."""
    changed = set()
    for name, value in values.items():
        column = row._meta.get_field(name)
        if isinstance(value, str):
            value = heads.text(value, column.max_length)
        if column.is_relation:  # compared by key: the row itself would be fetched
            same = getattr(row, column.attname) == (value.pk if value is not None else None)
        else:
            same = getattr(row, name) == value
        if not same:
            setattr(row, name, value)
            changed.add(name)
    return changed


def upsert(
    model: type[Model], known: dict[Any, Any], told: Mapping[Any, Mapping[str, Any]], fixed: Mapping[str, Any]
) -> dict[Any, Any]:
    """Bring `known` (key -> row) up to what was told (key -> column values); new rows get `fixed` as well.

    One INSERT and one UPDATE for all of them; gives every told row by key, each with its pk.
    """
    made, changed, columns = {}, [], set()
    for key, values in told.items():
        row = known.get(key)
        if row is None:
            row = model(**fixed)
            assign(row, values)
            made[key] = row
        elif moved := assign(row, values):
            changed.append(row)
            columns |= moved
    if made:
        model.objects.bulk_create(made.values(), batch_size=500)
    if len(changed) > MANY:  # far cheaper than an UPDATE with a CASE for each row
        model.objects.bulk_create(
            changed, batch_size=500, update_conflicts=True, unique_fields=["id"], update_fields=sorted(columns)
        )
    elif changed:
        model.objects.bulk_update(changed, sorted(columns))
    return {**{key: known[key] for key in told if key in known}, **made}


def known_instances(account_id: int, region: str, told: Iterable[str]) -> dict[str, Instance]:
    """The place's live rows and those told, by EC2 id, locked in one order. Call inside a transaction."""
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).select_related("cluster", "pool")
    rows = rows.filter(account_id=account_id, region=region).order_by("pk")
    known = {row.instance_id: row for row in rows.filter(gone_at=None)}
    others = sorted(set(told) - set(known))
    for start in range(0, len(others), 5000):
        known.update({row.instance_id: row for row in rows.filter(instance_id__in=others[start : start + 5000])})
    return known


def mark_seen(model: type[Model], pks: Iterable[int], at: datetime) -> None:
    """One UPDATE for thousands of rows."""
    rows = list(pks)
    for start in range(0, len(rows), 5000):
        model.objects.filter(pk__in=rows[start : start + 5000]).update(seen_at=at)

"""What a migration must not do while the release before still runs on the same database, and reports come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db.migrations import operations as ops
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED

#: take away or rename what the release before reads and writes
BREAKS = (ops.RemoveField, ops.DeleteModel, ops.RenameField, ops.RenameModel, ops.AlterModelTable)
#: nobody can tell from outside what they do, nor for how long
OPAQUE = (ops.RunPython, ops.RunSQL, ops.SeparateDatabaseAndState)
#: read the whole table under a lock that keeps writers out
SCANS = {ops.AddIndex: "builds its index under a lock: AddIndexConcurrently", ops.AddConstraint: "is checked over all rows under a lock",
         ops.AlterUniqueTogether: "is checked over all rows under a lock"}  # fmt: skip
HARMLESS = (
    ops.CreateModel, ops.AlterModelOptions, ops.AlterModelManagers, ops.AlterModelTableComment, ops.RemoveConstraint,
    ops.RemoveIndex, ops.RenameIndex, AddIndexConcurrently, RemoveIndexConcurrently,
)  # fmt: skip


def troubles(operation: Any, app: str, before: ProjectState, released: set[tuple[str, str]]) -> Iterator[str]:
    """Why this operation may stand in the way of the release before. `before`: the state that it meets; `released`:
    (app, model) of the tables that the release before uses."""
    model = _model(operation)
    if not isinstance(operation, OPAQUE) and (app, model) not in released:
        return  # a table that only this release knows
    what = _named(operation)
    if isinstance(operation, BREAKS):
        yield f"{what}: the release before reads and writes it; one release later"
    elif isinstance(operation, OPAQUE):
        yield f"{what}: cannot be judged; say in the list what it does and how long it takes"
    elif type(operation) in SCANS:
        yield f"{what}: {SCANS[type(operation)]}"
    elif isinstance(operation, ops.AddField):
        yield from (f"{what}: {why}" for why in _added(operation.field))
    elif isinstance(operation, ops.AlterField):
        old = before.models[app, model].fields[operation.name]
        yield from (f"{what}: {why}" for why in _altered(old, operation.field))
    elif not isinstance(operation, HARMLESS):
        yield f"{what}: unknown here; judge it and add it to a list"


def _added(field: Any) -> Iterator[str]:
    if field.many_to_many:
        return
    if not field.null and field.db_default is NOT_PROVIDED:
        yield "wants a value that the release before does not give: a db_default, or null"
    if field.unique or field.db_index:
        yield "builds an index under a lock"


def _altered(old: Any, new: Any) -> Iterator[str]:
    if old.null and not new.null:
        yield "refuses the nulls that the release before writes"
    if old.db_parameters(_connection())["type"] != new.db_parameters(_connection())["type"]:
        shorter = (new.max_length or 0) < (old.max_length or 0)
        if type(old) is not type(new) or shorter:
            yield "rewrites the table under a lock"
    if (new.unique and not old.unique) or (new.db_index and not old.db_index):
        yield "builds an index under a lock"


def _connection() -> Any:
    from django.db import connection

    return connection


def _model(operation: Any) -> str:
    return str(getattr(operation, "model_name", "") or getattr(operation, "name", "")).lower()


def _named(operation: Any) -> str:
    kind = type(operation).__name__
    of = getattr(operation, "index", None) or getattr(operation, "constraint", None)
    name = of.name if of is not None else getattr(operation, "name", "") or getattr(operation, "old_name", "")
    return f"{kind} {_model(operation)}.{name}" if name else kind

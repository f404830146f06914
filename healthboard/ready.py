"""Whether the database is ready for this release: asked before a process starts, and by `/readyz`."""

from __future__ import annotations

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from healthboard.fleet.models import Installation

PREPARE = "run python -m healthboard.processes prepare"
_NO_RIGHT = "42501"  # PostgreSQL's insufficient_privilege
_migrated = False  # migrations never go back while a process lives, so it is asked until it is true


class Away(Exception):
    """The database does not answer; the message says why in one line."""


def missing() -> str:
    """What this release lacks in the database, in one line; empty where nothing is. Raises Away.

    A database with more migrations than this release knows lacks nothing: during an upgrade the release before goes on.
    """
    global _migrated
    try:
        if not _migrated:
            executor = MigrationExecutor(connection)
            if executor.migration_plan(executor.loader.graph.leaf_nodes()):
                return f"the database lacks migrations: {PREPARE}"
            _migrated = True
        stamped = Installation.objects.order_by("pk").first()
    except DatabaseError as error:
        why = (str(error).strip().splitlines() or ["unknown"])[0]
        if getattr(error.__cause__, "sqlstate", "") == _NO_RIGHT:
            return f"this role may not use the database ({why}): {PREPARE}"
        raise Away(f"the database does not answer: {why}") from None
    if stamped is None:
        return f"the database is not stamped with a mode: {PREPARE}"
    if stamped.mode != settings.MODE:
        return f"this database belongs to mode {stamped.mode}, but HEALTHBOARD_MODE is {settings.MODE}"
    return ""

"""Tables are emptied between tests, which the audit record's triggers rightly refuse: a way past them for tests alone.

Django truncates every table, full or not, and then makes all content types and permissions again: half a second, most of
what a small test costs. Here the tables that have rows lose them, and content types and permissions stay as they are.
"""

from __future__ import annotations

import re
from typing import Any

from django.core.management.commands import flush
from django.db import transaction

#: what Django makes of the code after each migration, and only then
STAYS = {"django_content_type", "auth_permission"}


def allow(connection: Any) -> None:
    """From now on Django's flush works on this kind of database, past the triggers."""
    from healthboard.audit import guard

    operations = type(connection.ops)
    execute, made_again = operations.execute_sql_flush, flush.emit_post_migrate_signal

    def despite_the_guard(self: Any, statements: list[str]) -> None:
        if _may(self.connection) and len(statements) == 1 and "RESTART" not in statements[0]:
            _empty(self.connection, sorted({*re.findall(r'"(\w+)"', statements[0])} - STAYS))
            return
        guard.remove(self.connection)
        try:
            execute(self, statements)
        finally:
            guard.install(self.connection)
            made_again(verbosity=0, interactive=False, db=self.connection.alias)

    operations.execute_sql_flush = despite_the_guard
    flush.emit_post_migrate_signal = lambda *_, **__: None


def _may(connection: Any) -> bool:
    """Only PostgreSQL's superuser may leave triggers and foreign keys out."""
    if connection.vendor != "postgresql":
        return False
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser')")
        return cursor.fetchone()[0] == "on"


def _empty(connection: Any, tables: list[str]) -> None:
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        # as TRUNCATE does: what another connection still writes is waited for, and goes too
        cursor.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(" UNION ALL ".join(f"SELECT '{name}' WHERE EXISTS (SELECT FROM {name})" for name in tables))
        if full := [name for (name,) in cursor.fetchall()]:
            cursor.execute("; ".join(f"DELETE FROM {name}" for name in full))

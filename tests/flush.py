"""Tables are emptied between tests, which the audit record's triggers rightly refuse: a way past them for tests alone."""

from __future__ import annotations

from typing import Any


def allow(connection: Any) -> None:
    """From now on Django's flush works on this kind of database: it takes the triggers away and makes them again."""
    from healthboard.audit import guard

    operations = type(connection.ops)
    execute = operations.execute_sql_flush

    def despite_the_guard(self: Any, statements: list[str]) -> None:
        guard.remove(self.connection)
        try:
            execute(self, statements)
        finally:
            guard.install(self.connection)

    operations.execute_sql_flush = despite_the_guard

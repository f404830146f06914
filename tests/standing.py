"""A worker that stands still between two of its statements: what others do meanwhile is done in its own thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def once_written(then: Callable[[], Any]) -> Iterator[None]:
    """Right after this thread's next write, outside a transaction: where a worker may stand still for long."""
    waiting = [then]

    def executed(execute: Callable, sql: str, *more: Any) -> Any:
        result = execute(sql, *more)
        if waiting and sql.startswith("UPDATE"):
            waiting.pop()()
        return result

    with connection.execute_wrapper(executed):
        yield

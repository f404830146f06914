"""What each kind of task costs and how it ends, for `/metrics`; and the ids that its log records carry.

Gathered in the process and written at most every 15 s, so that counting costs no write per task.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from celery import signals
from django.db import DatabaseError, transaction
from django.db.models import F
from django.db.models.functions import Greatest
from structlog import contextvars

from healthboard import clock
from healthboard.fleet.models import Round

log = logging.getLogger(__name__)
EVERY_S = 15.0


@dataclass(slots=True)
class Sum:
    runs: int = 0
    failed: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    error: str = ""


class Book:
    """Sums of one process since they were last written; safe to share between threads."""

    def __init__(self, tick: Any = time.monotonic) -> None:
        self.tick, self.lock = tick, threading.Lock()
        self.sums: defaultdict[str, Sum] = defaultdict(Sum)
        self.written = tick()

    def add(self, task: str, seconds: float, error: str = "") -> None:
        with self.lock:
            row = self.sums[task[:64]]
            row.runs += 1
            row.failed += bool(error)
            row.seconds += seconds
            row.longest = max(row.longest, seconds)
            row.error = error[:255] or row.error
            due = self.tick() - self.written >= EVERY_S
        if due:
            self.write()

    def write(self) -> None:
        """What cannot be written is kept for the next time."""
        with self.lock:
            sums, self.sums, self.written = self.sums, defaultdict(Sum), self.tick()
        try:
            with transaction.atomic():
                for task in sorted(sums):
                    _store(task, sums[task])
        except DatabaseError as error:
            log.warning("what the tasks took could not be written: %s", type(error).__name__)
            with self.lock:
                for task, row in sums.items():
                    kept = self.sums[task]
                    kept.runs, kept.failed = kept.runs + row.runs, kept.failed + row.failed
                    kept.seconds, kept.longest = kept.seconds + row.seconds, max(kept.longest, row.longest)
                    kept.error = kept.error or row.error


def _store(task: str, row: Sum) -> None:
    more: dict[str, Any] = {"last_at": clock.now(), **({"error": row.error} if row.error else {})}
    more |= {
        "runs": F("runs") + row.runs, "failed": F("failed") + row.failed, "seconds": F("seconds") + row.seconds,
        "longest": Greatest(F("longest"), row.longest),
    }  # fmt: skip
    known = Round.objects.filter(task=task)
    if known.update(**more):
        return
    Round.objects.get_or_create(task=task, defaults={"last_at": more["last_at"]})  # several may be the first
    known.update(**more)


book = Book()
_begun: dict[str, float] = {}


@signals.task_prerun.connect
def _begin(task_id: str = "", task: Any = None, args: Any = (), **_: Any) -> None:
    _begun[task_id] = time.monotonic()
    ids = {"task": task.name, "task_id": task_id[:8]}
    if args:  # the one id that a message carries: of a repair, of a case …
        ids["subject"] = str(args[0])[:40]
    contextvars.bind_contextvars(**ids)


@signals.task_postrun.connect
def _end(task_id: str = "", task: Any = None, state: str = "", retval: Any = None, **_: Any) -> None:
    contextvars.unbind_contextvars("task", "task_id", "subject")
    took = time.monotonic() - _begun.pop(task_id, time.monotonic())
    error = "" if state in ("SUCCESS", "IGNORED", "", None) else type(retval).__name__
    book.add(task.name, took, error)


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _last(**_: Any) -> None:
    with contextlib.suppress(Exception):  # the process ends all the same
        book.write()

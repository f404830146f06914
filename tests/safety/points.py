"""Fault points, found by the code itself: each commit, each AWS call and each message of a worker, before and after.

A point's name says what happens where: `step|kind|place|when`. Between two lasting effects (a commit, a changing call)
all points leave the same behind when the worker dies there: they form a class.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from celery import signals
from django.db import connection

from healthboard import aws
from healthboard.repairs.models import Repair
from healthboard.sandbox.calls import is_changing
from tests.safety.board import COMMITS, DELIVERIES, ENDED, REACHED, STARTED, TASK_DONE, Board

ROOT = Path(__file__).resolve().parents[2]
OURS = (f"{ROOT}/workers/", f"{ROOT}/healthboard/")
STEPS = f"{ROOT}/workers/repair/steps/"
WRITES = ("INSERT", "UPDATE", "DELETE")


class Points:
    """Installed in a worker. `order`: {"name", "ordinal", "signal"} of the point where it sends itself that signal,
    and "record": a file that takes every point reached."""

    def __init__(self, board: Board, worker: int, order: dict[str, Any]) -> None:
        self.board, self.worker, self.order = board, worker, order
        self.seen: Counter[str] = Counter()
        self.on = False
        self.record = os.open(order["record"], os.O_CREAT | os.O_APPEND | os.O_WRONLY) if order.get("record") else -1

    def reach(self, kind: str, when: str, *, lasting: bool = False) -> None:
        if not self.on:
            return
        step, place = _where()
        name = f"{step}|{kind}|{place}|{when}"
        self.seen[name] += 1
        if self.record >= 0:
            os.write(self.record, f"{name}\t{self.seen[name]}\t{int(lasting)}\n".encode())
        if self.order.get("name") == name and self.order["ordinal"] == self.seen[name]:
            self.board.say(REACHED, self.worker, self.seen[name])
            os.kill(os.getpid(), self.order["signal"])

    def install(self) -> None:
        commit = connection.commit

        def committed() -> None:
            self.reach("commit", "before")
            commit()
            self._wrote()
            self.reach("commit", "after", lasting=True)

        def executed(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            alone = not connection.in_atomic_block and sql.lstrip().startswith(WRITES)
            if alone:
                self.reach("write", "before")
            result = execute(sql, params, many, context)
            if alone:
                if context["cursor"].rowcount:
                    self._wrote()
                self.reach("write", "after", lasting=True)
            return result

        connection.commit = committed  # type: ignore[method-assign]
        connection.execute_wrappers.append(executed)
        for client in aws._clients.values():
            client.meta.events.register("before-send", self._sending)
            client.meta.events.register("after-call", self._answered)
        signals.before_task_publish.connect(self._publishing, weak=False)
        signals.after_task_publish.connect(self._published, weak=False)
        signals.task_prerun.connect(self._begun, weak=False)
        signals.task_postrun.connect(self._done, weak=False)

    def _wrote(self) -> None:
        """But for how long its tasks took, which a process writes once a minute of real time, whatever it works on."""
        if not _where()[1].startswith("rounds."):
            self.board.add(COMMITS, self.worker)

    def _sending(self, event_name: str, **_: Any) -> None:
        self.reach("call " + event_name.rsplit(".", 1)[-1], "before")

    def _answered(self, model: Any, **_: Any) -> None:
        self.reach("call " + model.name, "after", lasting=is_changing(model.name))

    def _publishing(self, sender: str, **_: Any) -> None:
        self.reach("message " + sender, "before")

    def _published(self, sender: str, **_: Any) -> None:
        self.reach("message " + sender, "after")

    def _begun(self, task: Any, **_: Any) -> None:
        self.board.add(DELIVERIES, self.worker)
        self.board.add(STARTED, self.worker)
        self.on = task.name.startswith("workers.")
        self.reach("task " + task.name, "before")

    def _done(self, task: Any, **_: Any) -> None:
        self.reach("task " + task.name, "after")
        if self.on and self.order.get("tell"):
            self.board.say(TASK_DONE, self.worker)
        self.on = False
        self.board.add(ENDED, self.worker)


@cache
def _stem(path: str) -> str:
    return Path(path).stem


def _where() -> tuple[str, str]:
    """(step of the repair under way, handler of the step > innermost function of ours)."""
    step = inner = handler = ""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        label = f"{_stem(code.co_filename)}.{code.co_name}"
        if not inner and code.co_name == "inner" and "func" in frame.f_locals:  # left already: its decorator commits
            inner = getattr(frame.f_locals["func"], "__name__", "")
        elif code.co_filename.startswith(OURS):
            inner = inner or label
            if code.co_filename.startswith(STEPS):
                handler = handler or label
            repair = frame.f_locals.get("repair")
            if not step and isinstance(repair, Repair):
                step = repair.step or repair.state
        frame = frame.f_back
    return step, f"{handler}>{inner}" if handler else inner

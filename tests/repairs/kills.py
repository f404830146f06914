"""Kills the worker of a drive, in thought: at each commit and each changing AWS call of the engine, before and after.

The points are found by running, not by hand: a point is what is committed or called (the lifecycle function, the step,
AWS's operation), and each one kills once. What a kill leaves is what the database committed and AWS did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from django.db import connection

from healthboard import aws
from healthboard.repairs import lifecycle
from tests.repairs.driver import ACCOUNT, REGION, Drive
from workers.repair import engine, leases

Point = tuple[str, str, str]  # before or after, the step, what
OURS = (
    "repairs/lifecycle.py", "repair/run.py",
    "steps/prepare.py", "steps/leave.py", "steps/reboot.py", "steps/undo.py",
)  # fmt: skip
WRITES = ("INSERT", "UPDATE", "DELETE")


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class Kills:
    """`wanted(point)` says whether the worker dies there; each point kills once."""

    def __init__(self, drive: Drive, wanted: Callable[[Point], bool] = lambda point: True) -> None:
        self.drive, self.wanted = drive, wanted
        self.at: list[Point] = []
        self.seen: list[Point] = []
        self.armed = False
        self.repair_id = 0

    def step(self) -> str:
        """Read within the transaction that ends: after it, a look would begin another."""
        return lifecycle.Repair.objects.values_list("step", flat=True).get(pk=self.repair_id) if self.armed else ""

    def reach(self, when: str, what: str, step: str) -> None:
        if not self.armed:
            return
        point = (when, step, what)
        if point not in self.seen:
            self.seen.append(point)
        if point not in self.at and self.wanted(point):
            self.at.append(point)
            if when == "before":
                connection.rollback()
            raise Killed(point)

    def sweep(self) -> None:
        """As the driver's, but workers die; the next one finds their leases freed."""
        for repair_id in lifecycle.due():
            self.repair_id, self.armed = repair_id, True
            try:
                engine.advance(repair_id)
            except Killed:
                self.armed = False
                lifecycle.free_leases(leases.worker_name())
            finally:
                self.armed = False


@contextmanager
def killing(drive: Drive, wanted: Callable[[Point], bool] = lambda point: True):
    kills = Kills(drive, wanted)
    commit = connection.commit

    def committed() -> None:
        what, step = _function(), kills.step()
        kills.reach("before", what, step)
        commit()
        kills.reach("after", what, step)

    def executed(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if not connection.in_atomic_block and sql.lstrip().startswith(WRITES):
            kills.reach("after", _function(), kills.step())
        return result

    handlers = []
    for service in ("ec2", "ecs", "autoscaling"):
        events = aws.client(service, account=ACCOUNT, region=REGION, changing=True).meta.events
        for name, when in (("before-call", "before"), ("after-call", "after")):

            def called(when: str = when, model: Any = None, **_: Any) -> None:
                if kills.armed:
                    kills.reach("outside " + when, f"AWS {model.name}", kills.step())

            events.register(name, called)
            handlers.append((events, name, called))
    drive.sweep, sweep = kills.sweep, drive.sweep  # type: ignore[method-assign]
    connection.commit = committed
    try:
        with connection.execute_wrapper(executed):
            yield kills
    finally:
        del connection.commit
        drive.sweep = sweep  # type: ignore[method-assign]
        for events, name, handler in handlers:
            events.unregister(name, handler)


def _function() -> str:
    """The function whose transaction ends now: a decorated one is left already, its decorator names it."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "inner" and "func" in frame.f_locals:
            return frame.f_locals["func"].__name__
        if frame.f_code.co_filename.endswith((*OURS,)):
            return frame.f_code.co_name
        frame = frame.f_back
    return "?"

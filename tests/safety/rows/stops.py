"""T14: the stop switch is thrown while the worker stands at a fault point. No intent is committed after it."""

from __future__ import annotations

import threading
from typing import Any

from django.db import connection

from healthboard.audit.models import AuditRow
from healthboard.repairs import brakes
from tests.repairs.driver import person
from tests.safety import checks
from tests.safety.conductor import STOP, Conductor
from tests.safety.flows import Flow

#: seconds of the trial that the switch stays thrown
STOPPED_S = 8
#: real seconds after which the worker at its point must be what holds the switch's row
BLOCKED_S = 0.3


def run(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    [(name, ordinal)] = spec["points"]
    thrown: list[float] = []

    def standing(worker: Any) -> None:
        throw = threading.Thread(target=_throw)
        throw.start()
        throw.join(BLOCKED_S)
        worker.go_on()  # it holds the row: its transaction is the older one, and may end
        throw.join(20)
        thrown.append(conductor.offset)

    conductor.reached.append(standing)
    operator = person("admin")  # made before the worker stands somewhere in a transaction
    conductor.worker(name=name, ordinal=ordinal, signal=STOP)
    conductor.finish(flow.within_s, lambda: thrown)
    broken: list[str] = []
    if thrown:
        before = len(checks.log(conductor))
        conductor.steps(STOPPED_S)
        broken = [*_intents_after(), *_calls_after(before, conductor)]
        brakes.resume(operator, "the trial goes on")
    conductor.finish(flow.within_s)
    broken += checks.after(conductor, flow)
    return {"broken": broken, "reached": len(thrown), "recovery": 0}


def _throw() -> None:
    brakes.stop(person("admin"), "a trial")
    connection.close()


def _intents_after() -> list[str]:
    """Both rows are numbered while the switch's row is locked: their numbers are in the order of the commits."""
    stopped = AuditRow.objects.filter(verb="switch.stopped").order_by("pk").last()
    later = AuditRow.objects.filter(verb="repair.intent", pk__gt=stopped.pk)
    return [f"intended after the stop switch: {row.summary}" for row in later]


def _calls_after(before: int, conductor: Conductor) -> list[str]:
    """What was intended may still be sent; more than that one call is too much."""
    made = checks.log(conductor)[before:]
    return (
        [f"{len(made)} changing calls after the stop switch: {[c['operation'] for c in made]}"] if len(made) > 1 else []
    )

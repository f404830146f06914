"""What still runs on a machine that the policy wants idle before it is drained."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from healthboard import clock, words
from workers.collect.ecs_tasks import job_of
from workers.repair.left import of_daemon, on_living_host, protected, service_name
from workers.repair.results import Ask, Done, PutOff, Result
from workers.repair.run import Run
from workers.repair.steps.leave import _UNDO, _choice

#: `wait_for_idle` -> what must not run there
KINDS = {"standalone": "standalone or protected task", "job": "job"}


def not_idle(run: Run) -> PutOff | None:
    """Not now, since the policy waits until it is idle; None where it is, or where that has lasted long enough to ask."""
    if wanted(run) is None:
        return None
    busy = _busy(run)
    if not busy or _let_go(run, busy):
        return None
    if run.repair.step != "drain" and _waited_for(run) >= run.span("idle_wait_s", 86400):
        return None  # the step asks; directly before the drain nobody does, however long an earlier job was waited for
    until = _since(run) + run.span("idle_wait_s", 86400)
    return PutOff(30, f"{_said(run, busy)}; a person is asked at {until:%Y-%m-%d %H:%M} UTC")


def idle(run: Run) -> Result:
    """The step: it is idle, or a person says what then. Until it has waited long enough `not_idle` puts it off."""
    busy = _busy(run)
    if not busy:
        return Done("idle")
    if _let_go(run, busy):
        return Done("a person said to go on although it is not idle")
    run.remember(busy_then=busy)
    return Ask(
        f"{_said(run, busy)}, for {words.span(_waited_for(run).total_seconds())} now.",
        (_choice("wait_longer", "Wait longer"), _choice("not_idle", "Drain it all the same"), _UNDO),
    )


def wanted(run: Run) -> str | None:
    kind = run.values.get("wait_for_idle")
    return kind if kind in KINDS else None


def still_running(run: Run) -> list[str]:
    """What of it must not run there, in words, each kind of task once."""
    if run.look.container is None:
        return []
    here = on_living_host(run)
    if not here:
        return []  # what a dead host ran has ended; whether its tasks count as gone is asked when it is drained
    found = {_title(t) for t in here if not service_name(t)}
    found |= {_title(t) for t in here if wanted(run) == "job" and job_of(t) and not of_daemon(run, t)}
    return sorted(found) + protected(run, [t for t in here if not of_daemon(run, t)])


def _busy(run: Run) -> list[str]:
    """As `still_running`; found idle, the next wait is another one."""
    busy = still_running(run)
    if not busy and run.facts.get("busy_since"):
        run.remember(busy_since="")
    return busy


def _let_go(run: Run, busy: list[str]) -> bool:
    """Whether a person said to go on although all that runs there: the word is about what ran when it was asked."""
    told = run.facts.get("not_idle_allowed")
    return isinstance(told, list) and set(busy) <= set(told)


def _title(task: dict[str, Any]) -> str:
    job = job_of(task)
    return f"job {job}" if job else f"task {task['taskArn'].rsplit('/', 1)[-1]} of {task.get('group') or 'no group'}"


def _said(run: Run, busy: list[str]) -> str:
    more = f" and {len(busy) - 3} more" if len(busy) > 3 else ""
    return f"Not idle: waiting until no {KINDS[wanted(run) or 'job']} runs on it ({'; '.join(busy[:3])}{more})"


def _since(run: Run) -> datetime:
    kept = run.facts.get("busy_since")
    if not kept:
        kept = clock.now().isoformat()
        run.remember(busy_since=kept)
    return datetime.fromisoformat(kept)


def _waited_for(run: Run) -> timedelta:
    return clock.now() - _since(run)

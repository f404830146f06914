"""When a task counts as gone although ECS still lists it: the host is dead, or the task cannot be stopped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from healthboard import clock
from healthboard.fleet import gaps
from healthboard.fleet.models import Interval
from workers.repair.look import AwsTrouble, ask_aws, tasks_on
from workers.repair.run import Run


@dataclass(frozen=True, slots=True)
class Left:
    key: str
    title: str
    why: str
    allowed: bool  # by the policy, or by a named person
    missing: tuple[str, ...]

    @property
    def proven(self) -> bool:
        return not self.missing


def dead_host(run: Run, tasks: list[dict[str, Any]]) -> Left | None:
    """Instance stopped or gone; or EC2's system check impaired and the agent away for longer than the policy's time."""
    if run.look.state in ("stopped", "terminated"):
        why = f"The host is dead: the instance is {run.look.state}."
    else:
        since = _since(run, "EC2_SYSTEM"), _since(run, "AGENT_CONNECTIVITY")
        if run.look.connected is not False or None in since:
            return None
        if clock.now() - gaps.counted_from(since[1]) < run.span("disconnect_s", 300):
            return None
        why = (
            f"The host is dead: system check impaired since {since[0]:%H:%M:%S}, agent away since {since[1]:%H:%M:%S}."
        )
    return Left("dead_host", "Count its tasks as gone", why, _may(run, "dead_host"), _not_replaced(run, tasks))


def unkillable(run: Run, tasks: list[dict[str, Any]]) -> Left | None:
    """Stop was ordered longer ago than the task's stop time-out and a margin, and the connected agent cannot do it."""
    if run.look.connected is not True or not tasks:
        return None
    margin = run.span("unkillable_margin_s", 120)
    # a daemon's task is stopped last, once nothing else runs there: it waits for the stuck ones
    stuck = [t for t in tasks if not of_daemon(run, t)] or tasks
    for task in stuck:
        ordered = task.get("stoppingAt")
        limit = clock.scaled(timedelta(seconds=_stop_timeout(task)))
        if task.get("desiredStatus") != "STOPPED" or ordered is None:
            return None
        if clock.now() - gaps.counted_from(ordered) < limit + margin:
            return None
    return Left(
        "unkillable", "Count its tasks as gone",
        f"{len(stuck)} tasks cannot be stopped: their containers outlived the stop time-out.",
        _may(run, "unkillable"), _not_replaced(run, tasks),
    )  # fmt: skip


def on_living_host(run: Run) -> list[dict[str, Any]] | None:
    """Every task on it; None where its host is dead. Raises AwsTrouble where ECS lists fewer than it counts, or does not
    count: that what it leaves out is nothing is not to be concluded."""
    here = tasks_on(run.instance)
    if dead_host(run, here) is not None:
        return None
    if run.look.tasks is None or len(here) < run.look.tasks:
        raise AwsTrouble(_thin(run, here))
    return here


def counted_as_gone(run: Run) -> bool:
    """Whether what still runs there counts as gone, by a rule that is allowed and with every proof."""
    here = tasks_on(run.instance)
    found = (rule(run, here) for rule in (dead_host, unkillable))
    return any(left is not None and left.proven and left.allowed for left in found)


def _may(run: Run, rule: str) -> bool:
    return run.values.get(rule) == "auto" or rule in run.repair.allowed


def _stop_timeout(task: dict[str, Any]) -> float:
    return 120.0 if task.get("stopTimeout") is None else float(task["stopTimeout"])


def _since(run: Run, name: str) -> datetime | None:
    row = Interval.objects.filter(instance=run.instance, name=name, until=None, value="IMPAIRED").first()
    return row.since if row else None


def _not_replaced(run: Run, tasks: list[dict[str, Any]]) -> tuple[str, ...]:
    """Proofs that are missing: every task must belong to a service that runs its desired count without this host."""
    missing: list[str] = []
    services: dict[str, int] = {}
    for task in tasks:
        name = service_name(task)
        if not name:
            group = task.get("group") or "no group"
            missing.append(f"standalone task {task['taskArn'].rsplit('/', 1)[-1]} of {group}")
        else:
            services[name] = services.get(name, 0) + 1
    if run.look.tasks is None or len(tasks) < run.look.tasks:
        missing.append(_thin(run, tasks))  # a thin answer proves nothing about the tasks that it leaves out
    missing += protected(run, tasks)
    for name, here in services.items():
        service = _service(run, name)
        if service is None:
            missing.append(f"service {name} is unknown")
        elif _daemon(service):
            continue
        elif service.get("runningCount") is None or service.get("desiredCount") is None:
            missing.append(f"service {name} does not tell its counts")
        elif service["runningCount"] - here < service["desiredCount"]:
            missing.append(
                f"service {name} runs {max(service['runningCount'] - here, 0)} of {service['desiredCount']} elsewhere"
            )
    return tuple(missing)


def _thin(run: Run, listed: list[dict[str, Any]]) -> str:
    return f"ECS lists {len(listed)} of {'?' if run.look.tasks is None else run.look.tasks} tasks"


def service_name(task: dict[str, Any]) -> str:
    group = task.get("group", "")
    return group.removeprefix("service:") if group.startswith("service:") else ""


def _service(run: Run, name: str) -> dict[str, Any] | None:
    if not name:
        return None
    answer = ask_aws(run.client("ecs").describe_services, cluster=run.instance.cluster.name, services=[name])
    return next(iter(answer["services"]), None)


def of_daemon(run: Run, task: dict[str, Any]) -> bool:
    return _daemon(_service(run, service_name(task)))


def _daemon(service: dict[str, Any] | None) -> bool:
    return service is not None and service.get("schedulingStrategy") == "DAEMON"


def protected(run: Run, tasks: list[dict[str, Any]]) -> list[str]:
    arns = [t["taskArn"] for t in tasks if t.get("group", "").startswith("service:")]
    if not arns:
        return []
    answer = ask_aws(run.client("ecs").get_task_protection, cluster=run.instance.cluster.name, tasks=arns)
    told = {p["taskArn"]: p.get("protectionEnabled") for p in answer.get("protectedTasks", [])}
    words = {True: "is protected", None: "may be protected: ECS does not tell"}
    return [f"task {arn.rsplit('/', 1)[-1]} {words[told.get(arn)]}" for arn in arns if told.get(arn) is not False]

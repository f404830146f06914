"""When a task counts as gone although ECS still lists it: the host is dead, or the task cannot be stopped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from healthboard import clock
from healthboard.fleet import gaps
from healthboard.fleet.models import Interval
from workers.repair.look import AwsTrouble, ask_aws, tasks_on
from workers.repair.run import Run

#: it is not there, or the right to read it is not: asking again tells no more
_NOT_TOLD = re.compile(r"AccessDenied|ClientException$|InvalidParameterException$")


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
    ordered = [task.get("stoppingAt") for task in stuck]
    if None in ordered or any(task.get("desiredStatus") != "STOPPED" for task in stuck):
        return None
    since = [clock.now() - gaps.counted_from(at) for at in ordered]
    if min(since) < margin:
        return None  # too early, whatever its stop time-out
    names = [task.get("taskDefinitionArn", "") for task in stuck]
    limits = {name: _stop_time_out(run, name) for name in sorted(set(names))}
    if any(gone < (limits[name] or _agents(run)) + margin for gone, name in zip(since, names, strict=True)):
        return None
    unknown = [name.rpartition("/")[2] or "a task without a definition" for name, limit in limits.items() if not limit]
    how = "cannot be stopped: their containers outlived the stop time-out"
    return Left(
        "unkillable", "Count its tasks as gone",
        f"{len(stuck)} tasks {'were told to stop and have not' if unknown else how}.", _may(run, "unkillable"),
        (*(f"the stop time-out of {name} is not known" for name in unknown), *_not_replaced(run, tasks)),
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


def to_give_up(run: Run, here: list[dict[str, Any]]) -> None:
    """What people who are asked now may give up: these tasks, and as many as ECS counts beyond those that it lists."""
    unseen = max((run.look.tasks or 0) - len(here), 0)
    run.remember(left_here={"tasks": sorted(task["taskArn"] for task in here), "unseen": unseen})


def given_up(run: Run, here: list[dict[str, Any]] | None = None) -> bool:
    """Whether people gave up whatever runs there now: what they were shown then, and nothing that came since."""
    kept = run.facts.get("given_up") or {}
    if "force_tasks" not in run.repair.allowed or "tasks" not in kept or run.look.tasks is None:
        return False
    here = tasks_on(run.instance) if here is None else here
    named = {task["taskArn"] for task in here} <= set(kept["tasks"])
    return named and run.look.tasks - len(here) <= kept["unseen"]


def counted_as_gone(run: Run) -> bool:
    """Whether what still runs there counts as gone, by a rule that is allowed and with every proof."""
    here = tasks_on(run.instance)
    found = (rule(run, here) for rule in (dead_host, unkillable))
    return any(left is not None and left.proven and left.allowed for left in found)


def _may(run: Run, rule: str) -> bool:
    return run.values.get(rule) == "auto" or rule in run.repair.allowed


def _stop_time_out(run: Run, definition: str) -> timedelta | None:
    """How long the containers of a task of this definition may take to stop; None where ECS does not tell.

    Only the task definition tells it. A container that sets none, or 0, has the agent's, which no API tells: the policy's
    bound. Containers that depend on each other are stopped one after the other.
    """
    if not definition:
        return None
    try:
        answer = ask_aws(run.client("ecs").describe_task_definition, taskDefinition=definition)
    except AwsTrouble as trouble:
        cause = trouble.__cause__
        if isinstance(cause, ClientError) and _NOT_TOLD.match(cause.response["Error"].get("Code", "")):
            return None
        raise
    boxes = (answer.get("taskDefinition") or {}).get("containerDefinitions") or []
    each = [clock.scaled(box["stopTimeout"]) if box.get("stopTimeout") else _agents(run) for box in boxes]
    if any(box.get("dependsOn") for box in boxes):
        return sum(each, timedelta())
    return max(each, default=None)


def _agents(run: Run) -> timedelta:
    return run.span("stop_timeout_s", 120)


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

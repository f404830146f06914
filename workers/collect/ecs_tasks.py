"""Services and tasks: which workload runs where, which tasks stop together, which are protected."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from healthboard.fleet import heads
from healthboard.fleet.models import Cluster, Instance, Task, Workload
from workers.collect import jobs, store
from workers.collect.reader import Blind, Reader

JOB_TAG = "healthboard:job"


@dataclass(slots=True)
class Tasks:
    """`described`: tasks that ECS knows; `gone`: ARNs it knows no more; `protected`: ARN -> end, None if unread."""

    described: list[dict[str, Any]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    protected: dict[str, datetime | None] | None = None
    notes: list[str] = field(default_factory=list)


def read(reader: Reader, cluster: Cluster) -> Tasks:
    """Tasks that should run, and those known to us that are about to stop. Raises Blind, but not for protection."""
    listed = list(reader.pages("list_tasks", "taskArns", size=100, cluster=cluster.arn))
    known = set(Task.objects.filter(cluster=cluster).values_list("arn", flat=True))
    arns = [*listed, *sorted(known - set(listed))]
    found = Tasks()
    found.described, failures = reader.chunks(
        "describe_tasks", "tasks", "tasks", arns, 100, cluster=cluster.arn, include=["TAGS"]
    )
    found.gone = {failure["arn"] for failure in failures if failure.get("reason") == "MISSING" and failure.get("arn")}
    served = [t["taskArn"] for t in found.described if _service(t) and t.get("lastStatus") != "STOPPED"]
    try:
        rows, _ = reader.chunks("get_task_protection", "protectedTasks", "tasks", served, 100, cluster=cluster.arn)
        found.protected = {
            row["taskArn"]: row.get("expirationDate") if row.get("protectionEnabled") else None
            for row in rows
            if row.get("taskArn")
        }
    except Blind as blind:
        found.notes.append(str(blind))
    return found


def store_services(cluster: Cluster, described: list[dict[str, Any]], at: datetime) -> dict[tuple[str, str], Workload]:
    """All workloads of the cluster by (kind, name), the services brought up to date."""
    known = {(w.kind, w.name): w for w in Workload.objects.filter(cluster=cluster)}
    told = {}
    for item in described:
        name = item.get("serviceName")
        if not name or item.get("status") == "INACTIVE":
            continue
        kind = "DAEMON" if item.get("schedulingStrategy") == "DAEMON" else "SERVICE"
        deployment = item.get("deploymentConfiguration") or {}
        told[kind, heads.text(name, 255)] = {
            "name": name,
            "kind": kind,
            "arn": item.get("serviceArn") or "",
            "desired": item.get("desiredCount"),
            "running": item.get("runningCount"),
            "pending": item.get("pendingCount"),
            "minimum_percent": deployment.get("minimumHealthyPercent"),
            "maximum_percent": deployment.get("maximumPercent"),
            "tags": store.tags_of(item),
        }
    stored = store.upsert(Workload, known, told, _fixed(cluster))
    store.mark_seen(Workload, [w.pk for w in stored.values()], at)
    return {**known, **stored}


def _fixed(cluster: Cluster) -> dict[str, Any]:
    return {"account_id": cluster.account_id, "region": cluster.region, "cluster": cluster}


def store_tasks(
    cluster: Cluster,
    tasks: Tasks,
    instances: dict[str, Instance],
    workloads: dict[tuple[str, str], Workload],
    at: datetime,
) -> None:
    """Rows of the tasks that hold a place on an instance. A task goes only when ECS says that it stopped or is gone."""
    live = [t for t in tasks.described if t.get("taskArn") and t.get("lastStatus") not in ("STOPPED", "DELETED")]
    over = tasks.gone | {t["taskArn"] for t in tasks.described if t.get("taskArn")} - {t["taskArn"] for t in live}
    families = {
        ("FAMILY", name): {"name": name, "kind": "FAMILY", "tags": store.tags_of(task)}
        for task in live
        if not _service(task) and (name := _family(task))
    }
    stored = store.upsert(Workload, workloads, families, _fixed(cluster))
    store.mark_seen(Workload, [w.pk for w in stored.values()], at)
    workloads = {**workloads, **stored}
    known = {task.arn: task for task in Task.objects.filter(cluster=cluster)}
    names = {row.pk: row.instance_id for row in instances.values()}
    before = jobs.spread(known.values(), names)
    told = {t["taskArn"]: _columns(t, instances, workloads, tasks, known.get(t["taskArn"])) for t in live}
    stored = store.upsert(Task, known, told, _fixed(cluster))
    Task.objects.filter(pk__in=[known[arn].pk for arn in over if arn in known]).delete()
    left = [*stored.values(), *(row for arn, row in known.items() if arn not in told and arn not in over)]
    jobs.remember(cluster, before, jobs.spread(left, names), at)


def _columns(
    task: dict[str, Any],
    instances: dict[str, Instance],
    workloads: dict[tuple[str, str], Workload],
    tasks: Tasks,
    row: Task | None,
) -> dict[str, Any]:
    service = _service(task)
    if service:
        workload = workloads.get(("SERVICE", service)) or workloads.get(("DAEMON", service))
    else:
        workload = workloads.get(("FAMILY", _family(task)))
    arn = task["taskArn"]
    protected = row.protected_until if row is not None else None
    if tasks.protected is not None and arn in tasks.protected:
        protected = tasks.protected[arn]
    return {
        "arn": arn,
        "instance": instances.get(task.get("containerInstanceArn") or ""),
        "workload": workload,
        "family": _family(task),
        "group": task.get("group") or "",
        "job": job_of(task),
        "last_status": task.get("lastStatus") or "",
        "desired_status": task.get("desiredStatus") or "",
        "started_at": task.get("startedAt"),
        "stopping_at": task.get("stoppingAt"),
        "protected_until": protected,
        "gpus": sum(len(container.get("gpuIds") or []) for container in task.get("containers") or []),
    }


def _service(task: dict[str, Any]) -> str:
    group = str(task.get("group") or "")
    return heads.text(group.removeprefix("service:"), 255) if group.startswith("service:") else ""


def _family(task: dict[str, Any]) -> str:
    return heads.text(store.tail(task.get("taskDefinitionArn")).rpartition(":")[0], 255)


def job_of(task: dict[str, Any]) -> str:
    """The key of the tasks that stop together, or empty for a task on its own.

    Tasks of a service are replaced one by one, so that only a tag makes them a job; the group that ECS fills in by
    itself (`family:…`) binds nothing together.
    """
    tagged = store.tags_of(task).get(JOB_TAG)
    if tagged:
        return tagged[:255]
    if _service(task):
        return ""
    group = str(task.get("group") or "")
    shared = task.get("startedBy") or (group if not group.startswith("family:") else "")
    return f"{_family(task)}/{shared}"[:255] if shared else ""

"""What is kept of a job that loses tasks: on which instances it ran, since ECS soon lists its stopped tasks no more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from healthboard.fleet.models import Cluster, JobStop, Task

#: how long a job that never came back is remembered
KEEP = timedelta(days=7)
#: what a job loses within this time is one stop, told by several rounds
ONE_STOP = timedelta(minutes=15)


@dataclass(slots=True)
class Spread:
    """Where a job has tasks: EC2 instance id -> GPUs that they hold."""

    family: str
    nodes: dict[str, int] = field(default_factory=dict)


def spread(tasks: Iterable[Task], names: Mapping[int, str]) -> dict[str, Spread]:
    """job -> where it runs; `names` gives the EC2 ids of instances. Tasks without a job or an instance are left out."""
    found: dict[str, Spread] = {}
    for task in tasks:
        name = names.get(task.instance_id or 0)
        if task.job and name:
            nodes = found.setdefault(task.job, Spread(task.family)).nodes
            nodes[name] = nodes.get(name, 0) + task.gpus
    return found


def remember(cluster: Cluster, before: Mapping[str, Spread], after: Mapping[str, Spread], at: datetime) -> None:
    """Keep what stopped, forget what runs again. Asks the database nothing where no job moved."""
    moved = {name for name in {*before, *after} if _nodes(before, name) != _nodes(after, name)}
    if not moved:
        return
    known = {row.name: row for row in JobStop.objects.filter(cluster=cluster, name__in=moved)}
    made, changed, over = [], [], []
    for name in sorted(moved):
        row, had, has = known.get(name), _nodes(before, name), _nodes(after, name)
        if row is None:
            if len(has) < len(had):
                made.append(_row(cluster, name, before[name], len(has), at))
        elif not had or len(has) >= len(row.nodes):  # a new run under the old name is not the one that stopped
            over.append(row.pk)
        else:
            if len(has) < len(had) and at - row.at > ONE_STOP:  # it ran on for so long: this is another loss
                row.at, row.nodes = at, before[name].nodes
            row.left = len(has)
            changed.append(row)
    JobStop.objects.bulk_create(made, ignore_conflicts=True)
    JobStop.objects.bulk_update(changed, ["left", "at", "nodes"])
    JobStop.objects.filter(pk__in=over).delete()
    JobStop.objects.filter(cluster=cluster, at__lt=at - KEEP).delete()


def _nodes(jobs: Mapping[str, Spread], name: str) -> dict[str, int]:
    return jobs[name].nodes if name in jobs else {}


def _row(cluster: Cluster, name: str, was: Spread, left: int, at: datetime) -> JobStop:
    return JobStop(
        account_id=cluster.account_id, region=cluster.region, cluster=cluster, name=name, family=was.family,
        nodes=was.nodes, left=left, at=at,
    )  # fmt: skip

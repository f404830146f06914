"""A case in terms of jobs: which stand still because of it, with how many nodes and GPUs, and which need its machine.

The rules are those of `cases.jobs`, asked from the other end, for the cases of a page: a job stands still where it lost
tasks with the fault of the case, or where the case names victims, mates of the job that show only what followed. Nodes
that have new work by now do not count, nor do those that the person does not see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from healthboard.cases.jobs import BEFORE, MOST, came_with
from healthboard.cases.models import Case
from healthboard.fleet.models import Instance, JobStop, Task

Key = tuple[int, str]  # cluster, name of a job
#: what is read of each node and task
_OF_NODE = ("account", "region", "instance_id", "gone_at", "gpus_expected")
_OF_TASK = ("cluster", "instance", "job", "last_status", "started_at")


@dataclass(frozen=True, slots=True)
class Standstill:
    idle: bool  # it stands still; False: it runs across the machine, and needs it
    jobs: tuple[str, ...]  # keys of the jobs; empty where none is known
    nodes: int
    gpus: int


def of_cases(see: Callable[..., QuerySet], cases: Iterable[Case]) -> dict[int, Standstill]:
    """By the case's id, in what the person sees (`access.seeing`); cases that no job stands behind are left out. At most
    four queries, however many cases."""
    rows = [case for case in cases if case.instance is not None and case.open]
    if not rows:
        return {}
    stops = _stops(rows)
    named = {str(name) for case in rows for name in case.victims}
    named |= {name for found in stops.values() for stop in found for name in stop.nodes}
    mates: dict[tuple[int, str, str], Instance] = {}
    if named:
        known = Instance.objects.filter(instance_id__in=named, gone_at=None).only(*_OF_NODE)
        for one in known.annotate(seen=Q(pk__in=see(Instance.objects.all()).values("pk"))):
            mates[one.account_id, one.region, one.instance_id] = one
    ids = {case.instance_id for case in rows} | {one.pk for one in mates.values() if one.seen}
    on: dict[int, list[Task]] = defaultdict(list)
    tasks = Task.objects.filter(instance__in=ids).exclude(last_status="STOPPED").exclude(workload__kind="DAEMON")
    for task in tasks.only(*_OF_TASK):
        on[task.instance_id].append(task)
    spread = _spread(see, {(task.cluster_id, task.job) for tasks in on.values() for task in tasks if task.job})
    found = {}
    for case in rows:
        told = _of(case, stops.get(case.pk, ()), mates, on, spread)
        if told is not None:
            found[case.pk] = told
    return found


def _stops(rows: Sequence[Case]) -> dict[int, list[JobStop]]:
    """case id -> the stops on its instance that came with its fault."""
    since = min(case.evidence_at for case in rows) - BEFORE
    by_node: dict[tuple[int, str, str], list[JobStop]] = defaultdict(list)
    for stop in JobStop.objects.filter(at__gte=since).order_by("-at")[:MOST]:
        for name in stop.nodes:
            by_node[stop.account_id, stop.region, name].append(stop)
    return {
        case.pk: [
            stop for stop in by_node.get((case.account_id, case.region, case.instance.instance_id), ())
            if came_with(stop.at, case)
        ]
        for case in rows
    }  # fmt: skip


def _spread(see: Callable[..., QuerySet], jobs: set[Key]) -> dict[Key, dict[int, int]]:
    """job -> its instances -> their GPUs. A job's name says which it is within its cluster only."""
    found: dict[Key, dict[int, int]] = defaultdict(dict)
    if jobs:
        tasks = Task.objects.filter(cluster__in={cluster for cluster, _ in jobs}, job__in={name for _, name in jobs})
        tasks = see(tasks.exclude(last_status="STOPPED").exclude(instance=None), prefix="instance__")
        for cluster, job, pk, gpus in tasks.values_list("cluster_id", "job", "instance_id", "instance__gpus_expected"):
            found[cluster, job][pk] = gpus or 0
    return found


def _of(
    case: Case, stops: Sequence[JobStop], mates: dict[tuple[int, str, str], Instance], on: dict[int, list[Task]],
    spread: dict[Key, dict[int, int]],
) -> Standstill | None:  # fmt: skip
    names = {str(name) for name in case.victims} | {name for stop in stops for name in stop.nodes}
    others = [mates.get((case.account_id, case.region, name)) for name in sorted(names)]
    nodes = {one.pk: one for one in (case.instance, *others) if one is not None and one.gone_at is None}
    if stops or len(nodes) > 1:
        since = min([case.evidence_at, *(stop.at for stop in stops)])
        seen = [one for one in nodes.values() if one.pk == case.instance_id or one.seen]
        still = [one for one in seen if not any(_began(task, since) for task in on.get(one.pk, ()))]
        if still:
            jobs = {task.job for one in still for task in on.get(one.pk, ()) if task.job}
            jobs |= {stop.name for stop in stops}
            return Standstill(True, tuple(sorted(jobs)), len(still), sum(one.gpus_expected or 0 for one in still))
    needing = [task for task in on.get(case.instance_id, ()) if task.job]
    jobs = {task.job for task in needing}
    here = {pk: gpus for task in needing for pk, gpus in spread.get((task.cluster_id, task.job), {}).items()}
    return Standstill(False, tuple(sorted(jobs)), len(here), sum(here.values())) if len(here) > 1 else None


def _began(task: Task, since: datetime) -> bool:
    """New work, of whatever kind."""
    return task.last_status == "RUNNING" and task.started_at is not None and task.started_at > since

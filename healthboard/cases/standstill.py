"""A case in terms of jobs: which stand still because of it, with how many nodes and GPUs, and which need its machine.

A job is the set of tasks that stop together. It stands still where the case names victims: mates of the job that show
only what followed. Those of them that have new work by now do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from healthboard.cases.models import Case
from healthboard.fleet.models import Instance, Task


@dataclass(frozen=True, slots=True)
class Standstill:
    idle: bool  # it stands still; False: it runs across the machine, and needs it
    jobs: tuple[str, ...]  # keys of the jobs; empty where ECS lists none of their tasks any more
    nodes: int
    gpus: int


def of_cases(cases: Iterable[Case]) -> dict[int, Standstill]:
    """By the case's id; cases that no job stands behind are left out. At most three queries, however many cases."""
    rows = [case for case in cases if case.instance is not None and case.open]
    if not rows:
        return {}
    named = sorted({str(name) for case in rows for name in case.victims})
    mates: dict[tuple[int, str, str], Instance] = {}
    if named:
        for one in Instance.objects.filter(instance_id__in=named, gone_at=None):
            mates[one.account_id, one.region, one.instance_id] = one
    ids = {case.instance_id for case in rows} | {one.pk for one in mates.values()}
    on: dict[int, list[Task]] = defaultdict(list)
    for task in Task.objects.filter(instance__in=ids).exclude(job="").exclude(last_status="STOPPED"):
        on[task.instance_id].append(task)
    spread = _spread({task.job for tasks in on.values() for task in tasks})
    found = {}
    for case in rows:
        told = _of(case, mates, on, spread)
        if told is not None:
            found[case.pk] = told
    return found


def _spread(jobs: set[str]) -> dict[str, dict[int, int]]:
    """job -> its instances -> their GPUs."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    if jobs:
        tasks = Task.objects.filter(job__in=jobs).exclude(last_status="STOPPED").exclude(instance=None)
        for job, pk, gpus in tasks.values_list("job", "instance_id", "instance__gpus_expected"):
            found[job][pk] = gpus or 0
    return found


def _of(
    case: Case, mates: dict[tuple[int, str, str], Instance], on: dict[int, list[Task]],
    spread: dict[str, dict[int, int]],
) -> Standstill | None:  # fmt: skip
    victims = [mates.get((case.account_id, case.region, str(name))) for name in case.victims]
    nodes = [case.instance, *(one for one in victims if one is not None)]
    jobs = tuple(sorted({task.job for one in nodes for task in on.get(one.pk, ())}))
    if len(nodes) > 1:
        still = [one for one in nodes if not any(_new(task, case) for task in on.get(one.pk, ()))]
        if still:
            jobs = tuple(sorted({t.job for one in still for t in on.get(one.pk, ()) if not _new(t, case)}))
            return Standstill(True, jobs, len(still), sum(one.gpus_expected or 0 for one in still))
    here = {pk: gpus for job in jobs for pk, gpus in spread.get(job, {}).items()}
    return Standstill(False, jobs, len(here), sum(here.values())) if len(here) > 1 else None


def _new(task: Task, case: Case) -> bool:
    """Work that began after the fault."""
    return task.last_status == "RUNNING" and task.started_at is not None and task.started_at > case.evidence_at

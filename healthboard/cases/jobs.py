"""Jobs: which stand still, why and since when, which run on a machine with a case, which run.

A job is the set of tasks that stop together. What runs is read from the tasks; what stopped from `JobStop`, since ECS
soon lists a stopped task no more. A stop belongs to a case on one of its instances if it came about with the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Q, Sum

from healthboard import clock, words
from healthboard.cases.models import Case
from healthboard.diagnosis import catalogue
from healthboard.fleet.models import Account, Instance, JobStop, Task
from healthboard.people import access

#: a job stopped because of a fault if it did so within these times before and after the first evidence
BEFORE, AFTER = timedelta(minutes=2), timedelta(minutes=15)
#: a job that stopped without a fault is shown for so long
SHOWN = timedelta(days=1)
#: jobs and cases that are read for a page
MOST = 2000
#: state -> (its name, what it means when there is none)
TABS = {
    "still": ("Stand still", "No job stands still."),
    "risk": ("Need a sick machine", "No job runs on a machine with an open case."),
    "running": ("Running", "ECS lists no task that belongs to a job."),
    "ended": ("Ended", "No job ended within a day without a fault."),
}
Place = tuple[int, str]  # account, region
#: what is read of cases and instances
_OF_CASE = ("account", "region", "state", "code", "victims", "plan", "evidence_at", "instance__instance_id")
_OF_NODE = ("account", "region", "instance_id", "gone_at", "gpus_expected")


@dataclass(slots=True)
class Job:
    """One line. `nodes` are EC2 instance ids with the GPUs that its tasks hold or held; of a job that no case touches
    only their numbers are read."""

    name: str  # empty: known by its nodes alone
    family: str
    place: Place
    nodes: dict[str, int]
    running: int  # instances on which it has tasks now
    held: int  # GPUs that its tasks hold now
    since: datetime | None  # of what `state` says
    state: str = ""
    account: str = ""  # its number
    case: Case | None = None  # the one with the first fault
    more: list[Case] = field(default_factory=list)
    victims: list[str] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)  # those that are still there and seen
    idle_nodes: int = 0
    idle_gpus: int = 0

    @property
    def key(self) -> str:
        return f"{self.place[0]} {self.place[1]} {self.name or min(self.nodes, default='')}"

    @property
    def size(self) -> int:
        return len(self.nodes) or self.running

    @property
    def gpus(self) -> int:
        return sum(self.nodes.values()) if self.nodes else self.held

    @property
    def fault(self) -> str:
        return catalogue.get(self.case.code).title if self.case else ""

    @property
    def why(self) -> str:
        if self.case is None:
            return ""
        return f"{self.fault} on {self.case.instance}" if self.state == "still" else f"{self.case.instance} has a case"


def read(user: Any) -> list[Job]:
    """Every job in what a person sees: what stands still first, most GPUs idle first. A bounded number of queries."""
    cases = access.within(user, Case.objects.filter(closed_at=None, instance__isnull=False))
    cases = list(cases.select_related("instance").only(*_OF_CASE).order_by("evidence_at", "pk")[:MOST])
    now = clock.now()
    found = [*_live(user, cases), *_stopped(user, now)]
    by_node: dict[tuple[Place, str], list[Case]] = defaultdict(list)
    for case in cases:
        for name in {case.instance.instance_id, *map(str, case.victims)}:
            by_node[(case.account_id, case.region), name].append(case)
    for job in found:
        _judge(job, {case.pk: case for name in job.nodes for case in by_node.get((job.place, name), ())}.values())
    named = {case.pk for job in found if job.state == "still" for case in [job.case, *job.more] if case}
    found += [_nameless(case) for case in cases if case.victims and case.pk not in named]
    found = [job for job in found if job.state != "ended" or (job.since and job.since > now - SHOWN)]
    order, accounts = list(TABS), dict(Account.objects.values_list("pk", "account_id"))
    for job in found:
        job.account = accounts.get(job.place[0], "")
    return sorted(_count(user, found), key=lambda job: (order.index(job.state), -job.idle_gpus, -job.gpus, job.name))


def _live(user: Any, cases: list[Case]) -> list[Job]:
    """Jobs that have tasks; of those that a case touches or that lost some tasks, the instances too."""
    tasks = Task.objects.exclude(job="").exclude(last_status="STOPPED").filter(instance__gone_at=None)
    tasks = access.within(user, tasks, prefix="instance__")
    lost = {(row.cluster_id, row.name): row for row in JobStop.objects.filter(left__gt=0)[:MOST]}
    sums = tasks.values_list("cluster_id", "account_id", "region", "job").order_by()
    found: dict[tuple[int, str], Job] = {}
    for cluster, account, region, name, family, nodes, gpus, since in sums.annotate(
        first_family=Min("family"), nodes=Count("instance", distinct=True), held=Sum("gpus"), since=Min("started_at")
    ):
        found[cluster, name] = Job(name, family, (account, region), {}, nodes, gpus or 0, since)
    sick = {case.instance.instance_id for case in cases}.union(*(map(str, case.victims) for case in cases))
    near = set(tasks.filter(instance__instance_id__in=sick).values_list("job", flat=True)) | {name for _, name in lost}
    rows = tasks.filter(job__in=near).values_list("cluster_id", "job", "instance__instance_id", "gpus")
    for cluster, name, node, gpus in rows:
        nodes = found[cluster, name].nodes if (cluster, name) in found else {}
        nodes[node] = nodes.get(node, 0) + gpus
    for key in lost.keys() & found.keys():
        found[key].nodes = {**lost[key].nodes, **found[key].nodes}
        found[key].since = lost[key].at
    return list(found.values())


def _stopped(user: Any, now: datetime) -> list[Job]:
    rows = access.within(user, JobStop.objects.filter(left=0), pool="").order_by("-at")[:MOST]
    return [Job(row.name, row.family, (row.account_id, row.region), dict(row.nodes), 0, 0, row.at) for row in rows]


def _judge(job: Job, cases: Iterable[Case]) -> None:
    """Which state it is in, and because of which case: one with victims among its nodes, else the first."""
    behind = sorted(cases, key=lambda case: (not case.victims, case.evidence_at, case.pk))
    whole = job.running >= job.size
    guilty = [case for case in behind if _victims(job, case) or (not whole and came_with(job.since, case))]
    if guilty:
        job.state, job.case, job.more = "still", guilty[0], guilty[1:]
        job.victims = _victims(job, guilty[0])
        job.since = guilty[0].evidence_at if whole or job.since is None else job.since
    elif job.running == 0:
        job.state = "ended"
    else:
        job.state = "risk" if behind else "running"
        job.case, job.more = (behind[0], behind[1:]) if behind else (None, [])


def _victims(job: Job, case: Case) -> list[str]:
    """The case's victims where the root is one of the job's own nodes."""
    return [name for name in case.victims if name in job.nodes] if case.instance.instance_id in job.nodes else []


def came_with(at: datetime | None, case: Case) -> bool:
    """Whether what happened at that time came with the fault of the case."""
    return at is not None and case.evidence_at - BEFORE <= at <= case.evidence_at + AFTER


def _nameless(case: Case) -> Job:
    """A job that is known by its root and victims alone."""
    nodes = dict.fromkeys([case.instance.instance_id, *map(str, case.victims)], 0)
    family = ", ".join(str(row.get("workload", "")) for row in case.plan.get("tasks", []))
    job = Job("", family, (case.account_id, case.region), nodes, 0, 0, case.evidence_at, "still", case=case)
    job.victims = list(case.victims)
    return job


def _count(user: Any, jobs: list[Job]) -> list[Job]:
    """Those of which the person sees an instance, with what is seen of them. Of what stands still: its idle instances,
    which are there and have no work that began since; without any it stands still no longer."""
    asked = [job for job in jobs if job.nodes]
    names = {name for job in asked for name in job.nodes}
    seen = access.within(user, Instance.objects.filter(instance_id__in=names)).only(*_OF_NODE) if names else ()
    by_name = {((row.account_id, row.region), row.instance_id): row for row in seen}
    for job in asked:
        rows = {name: row for name in job.nodes if (row := by_name.get((job.place, name)))}
        job.nodes = {name: job.nodes[name] for name in rows}
        job.victims = [name for name in job.victims if name in rows]
        job.instances = [row for row in rows.values() if row.gone_at is None]
    still = [job for job in asked if job.state == "still"]
    work = _work({row.pk for job in still for row in job.instances})
    for job in still:
        idle = [row for row in job.instances if not any(at > job.since for at in work[row.pk])]
        job.idle_nodes = len(idle)
        job.idle_gpus = sum(row.gpus_expected or job.nodes.get(row.instance_id, 0) for row in idle)
    return [job for job in jobs if job.size and (job.state != "still" or job.idle_nodes)]


def _work(instances: set[int]) -> dict[int, list[datetime]]:
    """Instance -> when each of its tasks began; daemons are nobody's work."""
    found: dict[int, list[datetime]] = defaultdict(list)
    if instances:
        tasks = Task.objects.filter(instance__in=instances, last_status="RUNNING", started_at__isnull=False)
        for pk, at in tasks.exclude(workload__kind="DAEMON").values_list("instance_id", "started_at"):
            found[pk].append(at)
    return found


def on(user: Any, text: str) -> set[str]:
    """Names of jobs that have tasks on instances whose id has `text` in it."""
    tasks = access.within(user, Task.objects.exclude(job=""), prefix="instance__")
    return set(tasks.filter(instance__instance_id__icontains=text).values_list("job", flat=True)[:MOST])


def version() -> list[Any]:
    """Cheap values that change whenever the list would."""
    tasks = Task.objects.exclude(job="").aggregate(n=Count("pk"), pk=Max("pk"), started=Max("started_at"))
    cases = Case.objects.aggregate(n=Count("pk", filter=Q(closed_at=None)), changed=Max("changed_at"))
    stops = JobStop.objects.aggregate(n=Count("pk"), at=Max("at"), pk=Max("pk"))
    return [tasks, cases, stops, Instance.objects.aggregate(gone=Max("gone_at"))]


#: columns of an exported row
COLUMNS = (
    "job", "family", "account", "region", "state", "since", "nodes", "gpus", "idle_nodes", "idle_gpus", "case",
    "code", "first_fault", "victims", "why",
)  # fmt: skip


def as_dict(job: Job) -> dict[str, Any]:
    """A row for CSV and JSON."""
    return {
        "job": job.name,
        "family": job.family,
        "account": job.account,
        "region": job.place[1],
        "state": job.state,
        "since": job.since,
        "nodes": job.size,
        "gpus": job.gpus,
        "idle_nodes": job.idle_nodes,
        "idle_gpus": job.idle_gpus,
        "case": job.case.pk if job.case else None,
        "code": job.case.code if job.case else "",
        "first_fault": str(job.case.instance) if job.case else "",
        "victims": " ".join(job.victims),
        "why": job.why,
    }


def idle(jobs: Iterable[Job]) -> str:
    """``4 nodes with 32 GPUs`` that stand still, or nothing."""
    still = [job for job in jobs if job.state == "still"]
    if not still:
        return ""
    nodes, gpus = sum(job.idle_nodes for job in still), sum(job.idle_gpus for job in still)
    return f"{words.count(nodes, 'node')} with {words.count(gpus, 'GPU')}"

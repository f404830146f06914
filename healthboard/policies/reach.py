"""How many instances a policy matches now. A name that was mistyped matches none, and nobody would notice."""

from __future__ import annotations

from django.db.models import Prefetch, QuerySet

from healthboard import words
from healthboard.fleet.models import Instance, Task
from healthboard.policies import matching, versions
from healthboard.policies.models import Policy

COLUMNS = {"account": "account__account_id", "region": "region", "cluster": "cluster__name", "pool": "pool__name"}


def instances(policy: Policy) -> int:
    """Instances that are there now and are matched, idle or by one of their workloads; daemons never count."""
    named = {column: value for key, column in COLUMNS.items() if (value := getattr(policy, key))}
    rows = Instance.objects.filter(gone_at=None, **named)
    if policy.workload:
        rows = rows.filter(pk__in=_tasks().filter(workload__name=policy.workload).values("instance"))
    return _with_tags(rows, policy) if policy.tags else rows.count()


def sentence(policy: Policy) -> str:
    if policy.is_default:
        return ""
    count = instances(policy)
    if not count:
        return "No instance matches it now: is a name or a tag mistyped? It holds as soon as one does."
    return f"{words.count(count, 'instance matches', 'instances match')} it now."


def _tasks() -> QuerySet[Task]:
    return Task.objects.exclude(workload=None).exclude(workload__kind="DAEMON")


def _with_tags(rows: QuerySet[Instance], policy: Policy) -> int:
    """Tags lie in JSON, of the instance or of the workload, so that each is looked at."""
    mine = matching.snapshot_of(versions.data_of(policy))
    tasks = Prefetch("tasks", queryset=_tasks().select_related("workload"), to_attr="working")
    rows = rows.select_related("account", "cluster", "pool").prefetch_related(tasks)
    return sum(
        any(mine.matches(matching.target_of(row, task and task.workload)) for task in row.working or [None])
        for row in rows.iterator(chunk_size=2000)
    )

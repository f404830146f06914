"""Reads about the fleet: the table with its filters, and what the pages of one instance show."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Case, Count, F, FilteredRelation, IntegerField, Max, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from healthboard import clock
from healthboard.diagnosis.signals import VERDICT_ORDER
from healthboard.fleet import checks as checking
from healthboard.fleet.models import Gpu, HealthEvent, Instance, Interval, NodeRequest, Pool, Source, Task
from healthboard.fleet.sources import patience

#: filter in the address -> the column it compares
FILTERS = {
    "health": "verdict",
    "pool": "pool__name",
    "zone": "zone",
    "type": "instance_type",
    "owner": "owner",
    "cluster": "cluster__name",
    "account": "account__account_id",
    "region": "region",
}
#: filter in the address -> column of the tasks that an instance runs
OF_TASKS = {"workload": "workload__name", "job": "job"}
#: every parameter that says which rows, in the order of an address
PARAMS = ("q", *FILTERS, *OF_TASKS, "stage", "gone")
_RANK = Case(
    *[When(verdict=str(verdict), then=Value(rank)) for rank, verdict in enumerate(VERDICT_ORDER)],
    default=Value(9), output_field=IntegerField(),
)  # fmt: skip
#: column in the address -> what is sorted by; never null, so that paging by key skips nothing
SORTS: dict[str, Any] = {
    "health": _RANK,
    "instance": F("instance_id"),
    "pool": Coalesce("pool__name", Value("")),
    "zone": F("zone"),
    "type": F("instance_type"),
    "tasks": F("tasks_running"),
    "since": Coalesce("verdict_since", "first_seen_at"),
    "cluster": Coalesce("cluster__name", Value("")),
    "driver": F("driver_version"),
    "launched": Coalesce("launched_at", "first_seen_at"),
}
STAGES = ("waiting", "asking", "held", "snoozed", "observed", "scheduled", "running", "undoing", "decided", "none")


def stage(case_state: str | None, repair_state: str | None, gone: datetime | None = None) -> str:
    """How far our own work has come with an instance: of its open repair, else of its open case."""
    if repair_state:
        return repair_state.lower()
    if case_state:
        return case_state.lower()
    return "gone" if gone else "none"


def _stage_filter(name: str) -> Q:
    if name == "none":
        return Q(open_repair__isnull=True, open_case__isnull=True)
    if name in ("scheduled", "running", "asking", "undoing"):
        return Q(open_repair__state=name.upper())
    return Q(open_repair__isnull=True, open_case__state=name.upper())


def _with_open(rows: QuerySet[Instance]) -> QuerySet[Instance]:
    return rows.annotate(
        open_case=FilteredRelation("cases", condition=Q(cases__closed_at=None)),
        open_repair=FilteredRelation("repairs", condition=Q(repairs__closed_at=None)),
    )


def instances(seen: QuerySet[Instance], params: dict[str, str]) -> QuerySet[Instance]:
    """Instances among `seen` by the filters of an address (`PARAMS`); an unknown value matches nothing."""
    rows = _with_open(seen)
    if not params.get("gone"):
        rows = rows.filter(gone_at=None)
    for name, column in FILTERS.items():
        if value := params.get(name):
            rows = rows.filter(**{column: value})
    for name, column in OF_TASKS.items():
        if value := params.get(name):
            rows = rows.filter(pk__in=Task.objects.filter(**{column: value}).values("instance"))
    if params.get("stage") in STAGES:
        rows = rows.filter(_stage_filter(params["stage"]))
    for word in (params.get("q") or "").split()[:5]:
        rows = rows.filter(_search(word))
    return rows


def _search(word: str) -> Q:
    """An instance by (part of) its id, address, pool, zone or code, or by a GPU's UUID or serial, or a task. Ids and
    zones are small letters everywhere at AWS: to make them capitals first takes four times as long."""
    gpu = Gpu.objects.filter(_names_gpu(word), instance__isnull=False).values("instance")
    task = Task.objects.filter(Q(arn__endswith=word) | Q(family=word) | Q(workload__name=word)).values("instance")
    code = f"XID_{word}" if word.isdigit() else word.upper().replace(" ", "_")
    found = (
        Q(instance_id__contains=word.lower())
        | Q(pool__in=Pool.objects.filter(name__icontains=word))
        | Q(zone=word.lower())
        | Q(verdict_code=code)
        | Q(pk__in=gpu)
        | Q(pk__in=task)
    )
    return found | Q(private_ip=word) if _is_address(word) else found


def _names_gpu(word: str) -> Q:
    """Only what can name a GPU is compared with all of them."""
    if word.lower().startswith("gpu-"):
        return Q(uuid__startswith=f"GPU-{word[4:].lower()}")
    return Q(serial=word) if word.isalnum() and len(word) >= 6 else Q(pk__in=[])


def _is_address(word: str) -> bool:
    try:
        return bool(ip_address(word))
    except ValueError:
        return False


#: what a row of the table shows or exports; whole rows are three times as long
_ROW = (
    "instance_id", "region", "zone", "instance_type", "owner", "state", "gone_at", "verdict", "verdict_code",
    "verdict_since", "ecs_status", "agent_connected", "gpus_expected", "tasks_running", "tasks_pending", "private_ip",
    "driver_version", "image_id", "purchase", "launched_at", "seen_at", "node_seen_at", "account__account_id",
    "account__alias", "cluster__name", "pool__name",
)  # fmt: skip


def shown(rows: QuerySet[Instance]) -> QuerySet[Instance]:
    """With all that a row of the table shows, in one query."""
    return (
        rows.select_related("account", "cluster", "pool")
        .only(*_ROW)
        .annotate(
            case_id=F("open_case__id"),
            case_state=F("open_case__state"),
            repair_id=F("open_repair__id"),
            repair_state=F("open_repair__state"),
            repair_step=F("open_repair__step"),
        )
    )


def in_order(rows: QuerySet[Instance], sort: str, after: list[Any] | None) -> QuerySet[Instance]:
    """Ordered by `sort` (a leading minus reverses), continued after the key of the last row shown; a key that is of
    another order than this one is left out of account."""
    down, name = sort.startswith("-"), sort.lstrip("-")
    rows = rows.annotate(sort_key=SORTS.get(name, SORTS["health"]))
    if after is not None:
        beyond = "lt" if down else "gt"
        with contextlib.suppress(TypeError, ValueError, OverflowError, ValidationError):
            rows = rows.filter(Q(**{f"sort_key__{beyond}": after[0]}) | Q(sort_key=after[0], pk__gt=after[1]))
    return rows.order_by("-sort_key" if down else "sort_key", "pk")


def first(rows: QuerySet[Instance], sort: str, after: list[Any] | None, most: int) -> list[Instance]:
    """The first `most` rows of `instances` in that order, with all that the table shows: they are put in order by
    their keys alone, since whole rows of a large fleet are long to sort."""
    keys = dict(in_order(rows, sort, after).values_list("pk", "sort_key")[:most])
    found = {row.pk: row for row in shown(_with_open(Instance.objects.filter(pk__in=list(keys))))}
    for pk, row in found.items():
        row.sort_key = keys[pk]
    return [found[pk] for pk in keys if pk in found]


def oldest_word(row: Instance) -> tuple[datetime | None, str]:
    """When the more silent of AWS and the node last told something, and which it is where they are far apart."""
    if row.seen_at is None or row.node_seen_at is None:
        return (row.seen_at or row.node_seen_at), ("no reporter" if row.node_seen_at is None else "no AWS")
    older = min(row.seen_at, row.node_seen_at)
    apart = abs((row.seen_at - row.node_seen_at).total_seconds()) > 90
    return older, ("node" if older == row.node_seen_at else "AWS") if apart else ""


def health_counts(seen: QuerySet[Instance], params: dict[str, str]) -> list[tuple[str, int]]:
    """(verdict, instances) under the other filters, worst first; the sum of them too, as ``all``."""
    rows = instances(seen, {**params, "health": ""}).order_by().values_list("verdict").annotate(n=Count("pk"))
    found = dict(rows)
    return [(str(v), found[v]) for v in VERDICT_ORDER if v in found]


def choices(seen: QuerySet[Instance]) -> dict[str, list[str]]:
    """Values that the filters offer; one look at the fleet for all of them."""
    names = [name for name in FILTERS if name != "health"]
    live = seen.filter(gone_at=None).order_by().values_list(*(FILTERS[name] for name in names)).distinct()
    found: list[set[str]] = [set() for _ in names]
    for row in live:
        for values, value in zip(found, row, strict=True):
            values.add(value)
    return {name: sorted(value for value in values if value) for name, values in zip(names, found, strict=True)}


def fleet_version() -> list[Any]:
    """Cheap values that change whenever the table or the map would."""
    live = Instance.objects.aggregate(
        n=Count("pk"), seen=Max("seen_at"), read=Max("evaluated_at"), gone=Max("gone_at"), evidence=Max("evidence_at")
    )
    cases = Instance.cases.rel.related_model.objects.aggregate(at=Max("changed_at"), pk=Max("pk"))
    repairs = Instance.repairs.rel.related_model.objects.filter(closed_at=None).values_list("pk", "state", "step")
    return [live, cases, list(repairs[:500])]


#: columns of an exported row
COLUMNS = (
    "instance_id", "account", "region", "cluster", "pool", "zone", "type", "owner", "health", "code",
    "health_since", "stage", "ec2_state", "ecs_status", "agent_connected", "gpus", "tasks", "private_ip",
    "driver", "image", "purchase", "launched_at", "seen_at", "node_seen_at",
)  # fmt: skip


def as_dict(row: Instance) -> dict[str, Any]:
    """A row for CSV and JSON."""
    return {
        "instance_id": row.instance_id,
        "account": row.account.account_id,
        "region": row.region,
        "cluster": row.cluster.name if row.cluster else "",
        "pool": row.pool.name if row.pool else "",
        "zone": row.zone,
        "type": row.instance_type,
        "owner": row.owner,
        "health": row.verdict,
        "code": row.verdict_code,
        "health_since": row.verdict_since,
        "stage": stage(row.case_state, row.repair_state, row.gone_at),
        "ec2_state": row.state,
        "ecs_status": row.ecs_status,
        "agent_connected": row.agent_connected,
        "gpus": row.gpus_expected,
        "tasks": row.tasks_running,
        "private_ip": row.private_ip,
        "driver": row.driver_version,
        "image": row.image_id,
        "purchase": row.purchase,
        "launched_at": row.launched_at,
        "seen_at": row.seen_at,
        "node_seen_at": row.node_seen_at,
    }


def instance(seen: QuerySet[Instance], **key: Any) -> Instance | None:
    return seen.select_related("account", "cluster", "pool").filter(**key).first()


def checks(of: Instance) -> list[checking.Check]:
    return checking.read(of, of.heads.all(), of.intervals.filter(until=None), clock.now(), _patience(of))


def _patience(of: Instance) -> dict[str, timedelta]:
    """Per channel (ec2, ecs, node): how long its silence is borne. Read once for a row that a page was given."""
    borne: dict[str, timedelta] | None = getattr(of, "borne", None)
    if borne is None:
        found = Source.objects.filter(account=of.account_id, region=of.region)
        borne = of.borne = {source.name: max(patience(source), timedelta(seconds=20)) for source in found}
    return borne


def gpus(of: Instance) -> list[Gpu]:
    """By index. `shown` is the status, or empty (unknown) where a good one is too old to be believed."""
    rows = list(of.gpus.order_by("index", "uuid"))
    limit = clock.now() - _patience(of).get("node", checking.STALE) if rows else None
    for row in rows:
        old = row.measured_at is None or row.measured_at < limit
        row.shown = "" if old and row.status == "ok" else row.status
    return rows


def tasks(of: Instance) -> list[Task]:
    return list(of.tasks.select_related("workload").order_by("workload__name", "started_at"))


def events(of: Instance, most: int) -> list[HealthEvent]:
    return list(of.events.order_by("-last_at", "-pk")[:most])


def intervals(of: Instance, most: int) -> list[Interval]:
    """Newest first, those of the instance before those of its GPUs; an open one holds until its channel's head."""
    rows = of.intervals.select_related("head").order_by("-since", "-pk")
    return [*rows.filter(gpu="")[:most], *rows.exclude(gpu="")[:most]]


def requests(of: Instance, most: int) -> list[NodeRequest]:
    return list(of.requests.order_by("-pk")[:most])


def by_ids(seen: QuerySet[Instance], near: Any, ids: Iterable[str]) -> list[Instance]:
    """Those of `seen` by their EC2 ids, in the account and region of `near`."""
    wanted = list(ids)
    if not wanted:
        return []
    return list(
        seen.filter(account=near.account_id, region=near.region, instance_id__in=wanted)
        .select_related("pool")
        .order_by("instance_id")
    )

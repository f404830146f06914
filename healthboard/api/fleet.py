"""The fleet's parts through the API: GPUs and pools."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from ninja import Query, Router

from healthboard.api import more, schemas
from healthboard.api.auth import Throttle, may_view
from healthboard.api.errors import READ
from healthboard.api.lists import CSV, After, Limit, OneInstance, Word, page
from healthboard.fleet.models import Gpu, Instance, Pool
from healthboard.people import access
from healthboard.repairs.models import Repair

router = Router(tags=["fleet"], throttle=[Throttle()])


@router.get("/gpus", response={200: more.GpuList, **READ}, operation_id="list_gpus", openapi_extra=CSV)
def gpus(
    request: HttpRequest,
    instance: OneInstance = None,
    pool: Word = None,
    status: Word = None,
    gone: Annotated[bool, Query(False, description="those of instances that are gone, too")] = False,
    after: After = None,
    limit: Limit = 500,
    format: schemas.Format = schemas.Format.JSON,
):
    """GPUs with the instance where each was seen last; what a node read of them is on its instance's page."""
    may_view(request)
    rows = Gpu.objects.select_related("account", "instance__pool").only(
        "uuid", "serial", "name", "region", "index", "pci", "status", "measured_at", "condemned_at",
        "account__account_id", "instance__instance_id", "instance__pool__name",
    )  # fmt: skip
    rows = access.within(request.auth, rows, pool="instance__pool__name")
    if not gone:
        rows = rows.filter(instance__gone_at=None).exclude(instance=None)
    for name, value in (("instance__instance_id", instance), ("instance__pool__name", pool), ("status", status)):
        if value:
            rows = rows.filter(**{name: value})
    return page(request, rows, _gpu, "gpus", after, limit, format, more.GpuItem)


def _gpu(row: Gpu) -> dict[str, Any]:
    at = row.instance
    names = ("uuid", "serial", "name", "region", "index", "pci", "status", "measured_at", "condemned_at")
    return {
        "id": row.pk, **{name: getattr(row, name) for name in names}, "account": row.account.account_id,
        "instance": at.instance_id if at else "", "pool": at.pool.name if at and at.pool else "",
    }  # fmt: skip


@router.get("/pools", response={200: more.PoolList, **READ}, operation_id="list_pools", openapi_extra=CSV)
def pools(
    request: HttpRequest, pool: Word = None, after: After = None, limit: Limit = 500,
    format: schemas.Format = schemas.Format.JSON,
):  # fmt: skip
    """Pools with how many instances are there and in service, and how many are under repair."""
    may_view(request)
    serving = Q(state="running", ecs_status="ACTIVE", agent_connected=True)
    live = Instance.objects.filter(gone_at=None)
    rows = Pool.objects.select_related("account", "cluster").annotate(
        there=_number(live), serving=_number(live.filter(serving)), under=_number(Repair.objects.filter(closed_at=None))
    )
    rows = access.within(request.auth, rows, pool="name")
    if pool:
        rows = rows.filter(name=pool)
    return page(request, rows, _pool, "pools", after, limit, format, more.PoolItem)


def _number(rows: QuerySet) -> Coalesce:
    counted = rows.filter(pool=OuterRef("pk")).order_by().values("pool").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(counted), 0)


def _pool(row: Any) -> dict[str, Any]:
    names = ("name", "kind", "region", "desired", "minimum", "maximum", "paused_by_tag", "rolling_out", "seen_at")
    return {
        "id": row.pk, **{name: getattr(row, name) for name in names}, "account": row.account.account_id,
        "cluster": row.cluster.name, "group": row.group_name, "instances": row.there, "out": row.there - row.serving,
        "repairs": row.under,
    }  # fmt: skip

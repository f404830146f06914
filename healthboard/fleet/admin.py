"""Facts about the fleet, only seen: the collectors write them."""

from django.contrib import admin

from healthboard.fleet.models import Account, Cluster, Gpu, HealthEvent, Instance, Pool, Source, Task, Workload
from healthboard.people.granted import ReadOnly


@admin.register(Account)
class AccountAdmin(ReadOnly):
    list_display = ("account_id", "alias")


@admin.register(Source)
class SourceAdmin(ReadOnly):
    scope, pool = "", ""
    list_display = ("name", "scope", "account", "region", "succeeded_at", "error")
    list_select_related = ("account",)


@admin.register(Cluster)
class ClusterAdmin(ReadOnly):
    scope, pool = "", ""
    list_display = ("name", "account", "region", "batch", "paused_by_tag", "seen_at", "gone_at")
    list_select_related = ("account",)


@admin.register(Pool)
class PoolAdmin(ReadOnly):
    scope, pool = "", "name"
    list_display = ("name", "kind", "account", "region", "cluster", "desired", "minimum", "maximum", "auto_repair")
    list_select_related = ("account", "cluster")
    list_filter = ("kind", "region")


@admin.register(Instance)
class InstanceAdmin(ReadOnly):
    scope = ""
    list_display = (
        "instance_id",
        "pool",
        "owner",
        "state",
        "ecs_status",
        "verdict",
        "zone",
        "instance_type",
        "gone_at",
    )
    list_select_related = ("pool",)
    list_filter = ("verdict", "owner", "ecs_status", "region")
    search_fields = ("instance_id",)


@admin.register(Gpu)
class GpuAdmin(ReadOnly):
    scope = "instance__"
    list_display = ("uuid", "instance", "index", "status", "condemned_at", "condemned_why")
    list_select_related = ("instance",)
    list_filter = ("status",)
    search_fields = ("uuid", "serial", "instance__instance_id")


@admin.register(HealthEvent)
class HealthEventAdmin(ReadOnly):
    scope = "instance__"
    list_display = ("last_at", "instance", "code", "gpu", "source", "count")
    list_select_related = ("instance",)
    list_filter = ("source",)
    search_fields = ("instance__instance_id", "code")
    ordering = ("-last_at",)


@admin.register(Workload)
class WorkloadAdmin(ReadOnly):
    list_display = ("name", "kind", "cluster", "account", "region", "desired", "running")
    list_select_related = ("cluster", "account")
    list_filter = ("kind",)
    search_fields = ("name",)


@admin.register(Task)
class TaskAdmin(ReadOnly):
    scope = "instance__"
    list_display = ("arn", "instance", "workload", "last_status", "desired_status")
    list_select_related = ("instance", "workload")
    search_fields = ("arn",)

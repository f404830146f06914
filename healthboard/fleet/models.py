"""Facts about the fleet. Every row is keyed by account and region; nothing here decides anything.

Written by the collectors and the node API through `fleet.record` and `workers.collect`; the verdict columns of
`Instance` are written by `workers.decide` alone.
"""

from __future__ import annotations

from django.db import models

from healthboard.fleet.places import (
    Account,
    AwsMinute,
    AwsNotice,
    Installation,
    Place,
    Pulse,
    Round,
    ScrapeMemory,
    Source,
)

__all__ = [
    "Account",
    "AwsMinute",
    "AwsNotice",
    "Cluster",
    "Gpu",
    "Head",
    "HealthEvent",
    "Installation",
    "Instance",
    "Interval",
    "JobStop",
    "NodeRequest",
    "Owner",
    "Place",
    "Pool",
    "Pulse",
    "Round",
    "ScrapeMemory",
    "Source",
    "Task",
    "Workload",
    "serves",
]


class Cluster(Place):
    name = models.CharField(max_length=255)
    arn = models.CharField(max_length=512)
    batch = models.BooleanField(default=False)
    paused_by_tag = models.BooleanField(default=False)
    seen_at = models.DateTimeField(null=True)
    gone_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region", "name"], name="cluster_unique")]

    def __str__(self) -> str:
        return self.name


class Pool(Place):
    """A capacity provider; for an instance without one, cluster + launch template. The budget's lock is this row."""

    class Kind(models.TextChoices):
        GROUP = "GROUP", "Auto Scaling group"
        TEMPLATE = "TEMPLATE", "launch template"
        MANAGED = "MANAGED", "Managed Instances"
        NONE = "NONE", "no template"

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT)
    name = models.CharField(max_length=255)
    kind = models.CharField(max_length=10, choices=Kind)
    provider_arn = models.CharField(max_length=512, blank=True)
    group_name = models.CharField(max_length=255, blank=True)
    template_id = models.CharField(max_length=64, blank=True)
    auto_repair = models.BooleanField(null=True)
    desired = models.PositiveIntegerField(null=True)
    minimum = models.PositiveIntegerField(null=True)
    maximum = models.PositiveIntegerField(null=True)
    suspended = models.JSONField(default=list)
    health_check_type = models.CharField(max_length=64, blank=True)
    target_groups = models.BooleanField(default=False)  # target groups hang on the group itself
    paused_by_tag = models.BooleanField(default=False)
    rolling_out = models.BooleanField(null=True)  # an instance refresh is under way; None: not known
    seen_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region", "cluster", "name"], name="pool_unique")]

    def __str__(self) -> str:
        return self.name

    @property
    def replaces_by_itself(self) -> bool:
        """True where the group replaces members that fail EC2's own checks."""
        return self.kind == self.Kind.GROUP and not {"ReplaceUnhealthy", "Terminate", "Launch", "HealthCheck"} & set(
            self.suspended
        )


class Owner(models.TextChoices):
    """Who replaces an instance."""

    GROUP = "GROUP", "Auto Scaling group"
    TEMPLATE = "TEMPLATE", "launch template"
    PLAIN = "PLAIN", "nobody"
    ECS = "ECS", "ECS Managed Instances"
    BATCH = "BATCH", "AWS Batch"
    OTHER = "OTHER", "another controller"
    UNKNOWN = "UNKNOWN", "unknown"


def serves(state: str, ecs_status: str, agent_connected: bool | None) -> bool:
    """Whether an instance with these values is in service; for `Instance.serving`, and for rows read without a model."""
    return state == "running" and ecs_status == "ACTIVE" and agent_connected is True


class Instance(Place):
    instance_id = models.CharField(max_length=32)
    cluster = models.ForeignKey(Cluster, null=True, on_delete=models.PROTECT)
    pool = models.ForeignKey(Pool, null=True, on_delete=models.PROTECT, related_name="instances")
    owner = models.CharField(max_length=10, choices=Owner, default=Owner.UNKNOWN)
    owner_evidence = models.JSONField(default=list)  # sentences
    # EC2
    state = models.CharField(max_length=20, blank=True)  # pending, running, stopped, terminated …
    zone = models.CharField(max_length=32, blank=True)
    instance_type = models.CharField(max_length=64, blank=True)
    image_id = models.CharField(max_length=64, blank=True)
    template_id = models.CharField(max_length=64, blank=True)
    template_version = models.CharField(max_length=16, blank=True)
    group_name = models.CharField(max_length=255, blank=True)
    group_state = models.CharField(max_length=40, blank=True)  # InService, Standby …
    purchase = models.CharField(max_length=16, blank=True)  # on-demand, spot, capacity-block
    reservation_id = models.CharField(max_length=64, blank=True)
    placement_group = models.CharField(max_length=255, blank=True)
    private_ip = models.GenericIPAddressField(null=True)
    launched_at = models.DateTimeField(null=True)
    tags = models.JSONField(default=dict)
    #: why a task may reach the metadata service; empty where it may not, or where that is not known
    metadata_open = models.CharField(max_length=100, blank=True, default="", db_default="")
    # ECS
    container_arn = models.CharField(max_length=512, blank=True)
    ecs_status = models.CharField(max_length=32, blank=True)
    ecs_version = models.BigIntegerField(default=0)
    agent_connected = models.BooleanField(null=True)
    registered_at = models.DateTimeField(null=True)
    tasks_running = models.PositiveIntegerField(default=0)
    tasks_pending = models.PositiveIntegerField(default=0)
    # node
    boot_id = models.CharField(max_length=64, blank=True)
    booted_at = models.DateTimeField(null=True)
    driver_version = models.CharField(max_length=32, blank=True)
    reporter_version = models.CharField(max_length=32, blank=True)
    node_seen_at = models.DateTimeField(null=True)
    gpus_expected = models.PositiveIntegerField(null=True)
    # when we saw it
    first_seen_at = models.DateTimeField()
    seen_at = models.DateTimeField(null=True)
    gone_at = models.DateTimeField(null=True)  # terminated, or no longer told by any source
    launched_by_us = models.BooleanField(default=False)
    is_self = models.BooleanField(default=False)  # healthboard runs on it
    paused_by_tag = models.BooleanField(default=False)
    # the latest reading of the evidence; written by workers.decide
    verdict = models.CharField(max_length=12, default="UNKNOWN")
    verdict_code = models.CharField(max_length=64, blank=True)
    verdict_why = models.TextField(blank=True)
    verdict_since = models.DateTimeField(null=True)
    evidence_at = models.DateTimeField(null=True)  # something changed
    evaluated_at = models.DateTimeField(null=True)
    evaluate_next_at = models.DateTimeField(null=True)  # time alone may change the reading

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region", "instance_id"], name="instance_unique")]
        indexes = [
            models.Index(fields=["gone_at", "instance_id"], name="instance_live"),
            models.Index(fields=["verdict", "gone_at"], name="instance_verdict"),
        ]

    def __str__(self) -> str:
        return self.instance_id

    @property
    def serving(self) -> bool:
        return serves(self.state, self.ecs_status, self.agent_connected)


class Gpu(Place):
    """Identified by UUID, never by index; remembered after its instance is gone."""

    uuid = models.CharField(max_length=96)
    serial = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=100, blank=True)
    instance = models.ForeignKey(Instance, null=True, on_delete=models.SET_NULL, related_name="gpus")
    index = models.PositiveSmallIntegerField(null=True)
    pci = models.CharField(max_length=20, blank=True)
    status = models.CharField(max_length=20, blank=True)  # ok, lost, error, reset_required, missing
    measurements = models.JSONField(default=dict)
    measured_at = models.DateTimeField(null=True)
    condemned_at = models.DateTimeField(null=True)
    condemned_why = models.CharField(max_length=255, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "uuid"], name="gpu_unique")]
        indexes = [
            models.Index(
                fields=["account", "serial"], name="gpu_condemned", condition=models.Q(condemned_at__isnull=False)
            ),
            models.Index(fields=["uuid"], name="gpu_uuid_begins", opclasses=["varchar_pattern_ops"]),  # the search
        ]

    def __str__(self) -> str:
        return self.uuid


class Head(models.Model):
    """How far one channel (node, local, dcgm, ec2, ecs) has told about one instance.

    An open interval of the channel holds until `last_at`: an unchanged round costs one UPDATE, whatever its size.
    """

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="heads")
    channel = models.CharField(max_length=16)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    count = models.PositiveBigIntegerField(default=1)  # rounds told so far
    digest = models.CharField(max_length=64, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    seq = models.BigIntegerField(default=-1)  # of the last accepted report in this boot
    kernel_seq = models.BigIntegerField(default=-1)
    ended_by_us = models.BooleanField(default=False)  # silent because we drained it: blocks nothing

    class Meta:
        constraints = [models.UniqueConstraint(fields=["instance", "channel"], name="head_unique")]


class Interval(models.Model):
    """A continuous reading (see `signals.Reading`): open while `until` is null."""

    head = models.ForeignKey(Head, on_delete=models.CASCADE, related_name="intervals")
    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="intervals")
    source = models.CharField(max_length=16)
    name = models.CharField(max_length=40)
    gpu = models.CharField(max_length=96, blank=True)
    value = models.JSONField(null=True)
    attrs = models.JSONField(default=dict)
    since = models.DateTimeField()
    first_count = models.PositiveBigIntegerField()
    until = models.DateTimeField(null=True)
    observations = models.PositiveBigIntegerField(null=True)  # set when it is closed

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["head", "source", "name", "gpu"], condition=models.Q(until=None), name="interval_open"
            )
        ]
        indexes = [models.Index(fields=["instance", "until"], name="interval_instance")]


class HealthEvent(models.Model):
    """Something that happened at a time. Append-only but for a burst, which counts up in one row."""

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="events")
    source = models.CharField(max_length=16)
    code = models.CharField(max_length=64)
    gpu = models.CharField(max_length=96, blank=True)
    at = models.DateTimeField()
    last_at = models.DateTimeField()
    received_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    boot_id = models.CharField(max_length=64, blank=True)
    seq = models.BigIntegerField(null=True)
    text = models.TextField(blank=True)
    attrs = models.JSONField(default=dict)
    backlog = models.BooleanField(default=False)  # old when it arrived: recorded, never acted on

    class Meta:
        indexes = [
            models.Index(fields=["instance", "-last_at"], name="event_instance"),
            models.Index(fields=["-last_at"], name="event_last"),  # breadth asks for the newest of all instances
        ]


class Workload(Place):
    """A service, or a family of standalone tasks."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    name = models.CharField(max_length=255)
    kind = models.CharField(max_length=10)  # SERVICE, DAEMON, FAMILY
    arn = models.CharField(max_length=512, blank=True)
    desired = models.PositiveIntegerField(null=True)
    running = models.PositiveIntegerField(null=True)
    pending = models.PositiveIntegerField(null=True)
    minimum_percent = models.PositiveIntegerField(null=True)
    maximum_percent = models.PositiveIntegerField(null=True)
    tags = models.JSONField(default=dict)
    seen_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["account", "region", "cluster", "kind", "name"], name="workload_unique")
        ]

    def __str__(self) -> str:
        return self.name


class Task(Place):
    """A task that ECS lists on an instance; removed when ECS no longer lists it."""

    arn = models.CharField(max_length=512, unique=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    instance = models.ForeignKey(Instance, null=True, on_delete=models.CASCADE, related_name="tasks")
    workload = models.ForeignKey(Workload, null=True, on_delete=models.SET_NULL, related_name="tasks")
    family = models.CharField(max_length=255, blank=True)
    group = models.CharField(max_length=255, blank=True)
    job = models.CharField(max_length=255, blank=True)  # tasks that stop together
    last_status = models.CharField(max_length=20)
    desired_status = models.CharField(max_length=20, blank=True)
    started_at = models.DateTimeField(null=True)
    stopping_at = models.DateTimeField(null=True)
    protected_until = models.DateTimeField(null=True)
    gpus = models.PositiveSmallIntegerField(default=0)


class JobStop(Place):
    """A job that lost tasks: on which instances it ran until then. ECS soon lists a stopped task no more, and who is
    woken wants to know what stands still. Gone once the job runs on as many instances again."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    name = models.CharField(max_length=255)
    family = models.CharField(max_length=255, blank=True)
    nodes = models.JSONField()  # EC2 instance id -> GPUs that its tasks held
    left = models.PositiveIntegerField()  # instances on which it still has tasks
    at = models.DateTimeField()  # the first loss

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="job_stop_unique")]
        indexes = [models.Index(fields=["-at"], name="job_stop_at")]


class NodeRequest(models.Model):
    """One verb of the closed list that a node is asked to run, and its answer or the absence of one."""

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="requests")
    verb = models.CharField(max_length=20)
    asked_at = models.DateTimeField()
    asked_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True)
    answered_at = models.DateTimeField(null=True)
    ok = models.BooleanField(null=True)
    output = models.TextField(blank=True)
    checks = models.JSONField(default=list)

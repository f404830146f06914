"""Where facts come from: accounts, regions, the sources that tell of them, and what AWS says of a place.

Models of this app; imported from `fleet.models` like the others.
"""

from __future__ import annotations

from django.db import models


class Installation(models.Model):
    """One row: the mode this database belongs to, stamped at the first start."""

    mode = models.CharField(max_length=10)
    created_at = models.DateTimeField()


class Account(models.Model):
    account_id = models.CharField(max_length=12, unique=True)
    alias = models.CharField(max_length=100, blank=True)

    def __str__(self) -> str:
        return self.alias or self.account_id


class Place(models.Model):
    """Account and region of a fact."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT)
    region = models.CharField(max_length=32)

    class Meta:
        abstract = True


class Source(Place):
    """One thing we listen to in one account, region and (where apt) cluster; its age says whether we can see."""

    name = models.CharField(max_length=32)  # ec2, autoscaling, ecs, dcgm, node, events
    scope = models.CharField(max_length=255, blank=True)  # cluster name, or empty
    interval_s = models.FloatField(default=60)
    attempted_at = models.DateTimeField(null=True)
    succeeded_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True)
    good_rounds = models.PositiveIntegerField(default=0)  # in a row, since the last failure, gap or start
    watched_from = models.DateTimeField(null=True)  # after a start, a gap or a jump: until it has told full rounds
    #: [ISO time, why] of each failure after it had seen, the newest last
    lost = models.JSONField(default=list, db_default=[])
    #: answers alike, so far, that told too few of what was known to be believed; and how many these told at most
    doubted_rounds = models.PositiveIntegerField(default=0, db_default=0)
    doubted_told = models.PositiveIntegerField(default=0, db_default=0)
    calls = models.PositiveBigIntegerField(default=0)
    dropped = models.JSONField(default=dict)  # reason -> messages that were not used

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region", "name", "scope"], name="source_unique")]

    def __str__(self) -> str:
        return f"{self.name} {self.scope}".strip()


class ScrapeMemory(Place):
    """What the next scrape of a place's exporters is compared with: instance id -> see `workers.collect.exporters`."""

    at = models.DateTimeField()
    kept = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region"], name="scrape_memory_unique")]


class AwsNotice(Place):
    """What AWS Health says of the place or of one of its zones, and of no instance: shown, and evidence of nothing."""

    arn = models.CharField(max_length=300)  # of the event, or the name of the message that brought it
    zone = models.CharField(max_length=32, blank=True)
    service = models.CharField(max_length=40, blank=True)
    type = models.CharField(max_length=120, blank=True)
    topic = models.CharField(max_length=20)  # issue, maintenance, reboot, retirement, notice
    text = models.CharField(max_length=300, blank=True)
    begun_at = models.DateTimeField()
    told_at = models.DateTimeField()  # when AWS last told of it
    ends_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region", "arn"], name="aws_notice_unique")]

    def __str__(self) -> str:
        return self.type or self.arn


class AwsMinute(Place):
    """How AWS answered in one minute: rounds and changing calls that went well, and those that failed."""

    minute = models.DateTimeField()
    good = models.PositiveIntegerField(default=0)
    bad = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=255, blank=True)  # the last one

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "region", "minute"], name="aws_minute_unique")]


class Pulse(models.Model):
    """When a part of healthboard itself last came round, and what it found: canary, ticks, invariants."""

    name = models.CharField(max_length=64, unique=True)
    at = models.DateTimeField()
    ok = models.BooleanField(default=True)
    detail = models.JSONField(default=dict)


class Round(models.Model):
    """What one kind of task has cost so far, since the installation began; see `workers.rounds`."""

    task = models.CharField(max_length=64, unique=True)
    runs = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)
    longest = models.FloatField(default=0.0)
    last_at = models.DateTimeField()
    error = models.CharField(max_length=255, blank=True)  # name of the last exception

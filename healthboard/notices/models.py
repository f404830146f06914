"""Outgoing messages, written with the change that they announce; whom they reach; and each way to each of them."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from healthboard.notices.kinds import OPERATORS, SEVERITIES


class Notice(models.Model):
    """One thing to be told. A row of the outbox: committed with its change, made into deliveries afterwards."""

    key = models.CharField(max_length=200, unique=True)  # said again, it is the same one
    kind = models.CharField(max_length=32)  # see `kinds.KINDS`
    event = models.CharField(max_length=12, default="trigger")
    severity = models.CharField(max_length=10, default="warning")
    thread = models.CharField(max_length=200, blank=True, db_index=True)  # what it is about: "case:12", "breaker:3"
    receivers = models.JSONField(default=list)  # names, as policies give them
    account = models.CharField(max_length=12, blank=True)
    region = models.CharField(max_length=32, blank=True)
    pool = models.CharField(max_length=255, blank=True)
    workloads = models.JSONField(default=list)
    subject = models.CharField(max_length=255)
    body = models.TextField(blank=True)
    facts = models.JSONField(default=dict)  # the card: label -> words
    tally = models.JSONField(default=dict)  # instance id -> how often
    link = models.CharField(max_length=255, blank=True)  # path on this site
    count = models.PositiveIntegerField(default=1)
    only = models.ForeignKey("Target", null=True, on_delete=models.CASCADE)  # a test concerns one target
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    next_at = models.DateTimeField()  # not made into deliveries before
    routed_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["next_at"], name="notice_due", condition=models.Q(routed_at=None))]

    def __str__(self) -> str:
        return self.subject


def to_operators() -> list[str]:
    return [OPERATORS]


class Target(models.Model):
    """Where notices go. What lets a stranger send there (a Slack address, a routing key, a secret) is never shown."""

    class Kind(models.TextChoices):
        SLACK = "slack", "Slack (incoming webhook)"
        PAGERDUTY = "pagerduty", "PagerDuty (Events API v2)"
        WEBHOOK = "webhook", "Signed webhook"
        EMAIL = "email", "E-mail"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=10, choices=Kind)
    enabled = models.BooleanField(default=True)
    address = models.TextField(blank=True)  # Slack's and a webhook's URL, PagerDuty's if not the usual one; addresses
    secret = models.TextField(blank=True)  # PagerDuty's routing key, the webhook's secret
    secret_before = models.TextField(blank=True)  # signs too, until the receiver knows the new one
    people = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True)
    kinds = models.JSONField(default=list, blank=True)  # none: all
    minimum = models.CharField(max_length=10, choices=[(s, s) for s in SEVERITIES], default="info")
    receivers = models.JSONField(default=to_operators, blank=True)  # beside its own name
    pools = models.JSONField(default=list, blank=True)
    workloads = models.JSONField(default=list, blank=True)

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """One notice on its way to one target (of an e-mail target: to one address). Written by `workers.notify`."""

    class State(models.TextChoices):
        PENDING = "PENDING", "on its way"
        SENT = "SENT", "sent"
        FAILED = "FAILED", "given up"
        SKIPPED = "SKIPPED", "no longer needed"

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="deliveries")
    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="deliveries")
    to = models.CharField(max_length=254, blank=True)  # e-mail: an address from the target's list
    person = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE)
    state = models.CharField(max_length=8, choices=State, default=State.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    put_off = models.BooleanField(default=False)  # by its person's quiet hours
    fence = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True)  # why the last try failed, and what to do about it

    class Meta:
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(
                fields=["notice", "target", "to"], condition=models.Q(person=None), name="delivery_unique"
            ),
            models.UniqueConstraint(
                fields=["notice", "target", "person"],
                condition=models.Q(person__isnull=False),
                name="delivery_person_unique",
            ),
        ]
        indexes = [
            models.Index(fields=["next_at"], name="delivery_due", condition=models.Q(state="PENDING")),
            models.Index(fields=["target", "-ended_at"], name="delivery_target"),
        ]


class QuietHours(models.Model):
    """When a person wants no e-mail. What comes meanwhile waits, and is dropped if it is over by then."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="quiet_hours")
    starts = models.TimeField()
    ends = models.TimeField()
    zone = models.CharField(max_length=64, default="UTC")
    critical_through = models.BooleanField(default=True)  # what is critical is sent all the same

    class Meta:
        verbose_name = verbose_name_plural = "quiet hours"

    def __str__(self) -> str:
        return f"{self.user}: {self.starts:%H:%M} to {self.ends:%H:%M} {self.zone}"

"""The work that carries a decision out, and what limits it. Rows are written by `repairs.lifecycle` (repairs, steps,
calls, occupancy) and `repairs.brakes` (switch, breakers, pauses) alone."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from healthboard.fleet.models import Account, Instance, Pool
from healthboard.policies.models import PolicyVersion
from healthboard.repairs.states import OPEN, State

#: `Call.service` of what is asked of a workload: it changes nothing about the instance
WORKLOAD = "workload"


class Repair(models.Model):
    instance = models.ForeignKey(Instance, on_delete=models.PROTECT, related_name="repairs")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.PROTECT, related_name="repairs")
    action = models.CharField(max_length=12)
    owner = models.CharField(max_length=10)  # as frozen when it was opened
    state = models.CharField(max_length=12, choices=[(s, s) for s in State], default=State.SCHEDULED)
    step = models.CharField(max_length=32, blank=True)  # the step under way
    why_waiting = models.TextField(blank=True)
    automatic = models.BooleanField(default=False)
    requested_by = models.CharField(max_length=150)
    allowed = models.JSONField(default=list)  # exceptions that a named person allowed, e.g. "terminate_first"
    settings = models.JSONField(default=dict)  # the resolved policy settings, frozen
    policy_version = models.ForeignKey(PolicyVersion, null=True, on_delete=models.PROTECT)
    plan = models.JSONField(default=dict)
    opened_at = models.DateTimeField()
    not_before = models.DateTimeField()  # undo window, or the round that lets breadth be seen first
    next_at = models.DateTimeField()  # when a worker should look again
    closed_at = models.DateTimeField(null=True)
    carried_back_at = models.DateTimeField(null=True)  # its end was told to the case
    outcome = models.CharField(max_length=32, blank=True)
    outcome_why = models.TextField(blank=True)
    stop_asked_by = models.CharField(max_length=150, blank=True)  # stop between two steps, then undo
    irreversible = models.BooleanField(default=False)
    # claim
    fence = models.PositiveIntegerField(default=0)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    # what the steps remember
    facts = models.JSONField(default=dict)
    replacement = models.ForeignKey(Instance, null=True, on_delete=models.PROTECT, related_name="replaces")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["instance"], condition=models.Q(state__in=[str(s) for s in OPEN]), name="one_open_repair"
            )
        ]
        indexes = [
            models.Index(fields=["state", "next_at"], name="repair_due"),
            models.Index(fields=["-closed_at", "-id"], name="repair_closed"),  # the list of past ones, newest first
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.instance}"


class Step(models.Model):
    """One step of a repair, in order; its changing calls are `Call` rows."""

    repair = models.ForeignKey(Repair, on_delete=models.CASCADE, related_name="steps")
    number = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=32)
    state = models.CharField(max_length=10, default="RUNNING")  # RUNNING, DONE, SKIPPED, FAILED
    note = models.TextField(blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["repair", "number"], name="step_unique")]


class Call(models.Model):
    """A changing AWS call: the intent, committed before it is made, and its outcome, read back after."""

    step = models.ForeignKey(Step, on_delete=models.CASCADE, related_name="calls")
    repair = models.ForeignKey(Repair, on_delete=models.CASCADE, related_name="calls")
    service = models.CharField(max_length=20)
    operation = models.CharField(max_length=64)
    target = models.CharField(max_length=64)  # the one instance id that it is about
    request = models.JSONField()  # frozen: a repeat sends exactly this
    token = models.CharField(max_length=64, blank=True)
    fence = models.PositiveIntegerField()
    intended_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=64, blank=True)  # ok, AWS's error code, unknown
    detail = models.TextField(blank=True)

    class Meta:
        ordering = ["pk"]


class Occupancy(models.Model):
    """A unit of a pool's budget, from take to release."""

    repair = models.OneToOneField(Repair, on_delete=models.CASCADE, related_name="occupancy")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT)
    units = models.PositiveSmallIntegerField()  # 0 where the instance was out already
    taken_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)
    size = models.PositiveIntegerField()  # n at the take
    allowed = models.PositiveIntegerField()
    out_before = models.PositiveIntegerField()
    note = models.CharField(max_length=255, blank=True)


class Launch(models.Model):
    """How one launch of a replacement came out; what a pool's protected mode and a zone's trouble rest on."""

    class Outcome(models.TextChoices):
        SERVED = "SERVED", "the replacement serves"
        NO_CAPACITY = "NO_CAPACITY", "no capacity in that zone"
        FAILED = "FAILED", "no replacement came to serve"

    repair = models.ForeignKey(Repair, on_delete=models.CASCADE, related_name="launches")
    pool = models.ForeignKey(Pool, null=True, on_delete=models.PROTECT)
    instance_type = models.CharField(max_length=64)
    zone = models.CharField(max_length=32, blank=True)
    outcome = models.CharField(max_length=12, choices=Outcome)
    why = models.TextField(blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repair", "zone", "outcome"], name="launch_unique")]
        indexes = [models.Index(fields=["pool", "-at"], name="launch_pool")]


class Switch(models.Model):
    """One row: acting on or off for the whole installation, and the stop switch."""

    acting = models.BooleanField(default=False)
    stopped = models.BooleanField(default=False)
    changed_at = models.DateTimeField()
    changed_by = models.CharField(max_length=150)
    reason = models.CharField(max_length=255, blank=True)


#: kind of a breaker -> what it is about
KINDS = {
    "CORRELATED": "Many at once",
    "AWS_ERRORS": "AWS errors",
    "BLIND": "Blind for long",
    "LAUNCH": "Failed launches: protected mode",
}


class Breaker(models.Model):
    """Stops repair in a scope until a person releases it. A person's decision passes one of kind CORRELATED only."""

    account = models.ForeignKey(Account, null=True, on_delete=models.PROTECT)
    region = models.CharField(max_length=32, blank=True)
    kind = models.CharField(max_length=20)  # CORRELATED, AWS_ERRORS, BLIND, LAUNCH
    scope_kind = models.CharField(max_length=20)  # pool, zone, image, driver, instance_type, workload, place
    scope = models.CharField(max_length=255)
    why = models.TextField()
    opened_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)
    released_by = models.CharField(max_length=150, blank=True)
    release_reason = models.CharField(max_length=255, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["account", "region", "kind", "scope_kind", "scope"],
                condition=models.Q(released_at=None),
                name="one_open_breaker",
            )
        ]

    @property
    def where(self) -> str:
        """Its scope in words."""
        if self.scope_kind == "place":
            return f"{self.account} {self.region}"
        return f"{self.scope_kind.replace('_', ' ')} {self.scope}"

    @property
    def title(self) -> str:
        return KINDS.get(self.kind, self.kind)


class Pause(models.Model):
    """A named stop set by a person, with an end."""

    account = models.ForeignKey(Account, null=True, blank=True, on_delete=models.PROTECT)
    region = models.CharField(max_length=32, blank=True)
    scope_kind = models.CharField(
        max_length=20,
        choices=[("fleet", "fleet"), ("pool", "pool"), ("workload", "workload"), ("instance", "instance")],
    )
    scope = models.CharField(max_length=255, blank=True, help_text="name of the pool or workload, or instance id")
    reason = models.CharField(max_length=255)
    set_by = models.CharField(max_length=150, editable=False)
    set_by_user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL)
    set_at = models.DateTimeField(editable=False)
    until = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, editable=False)
    ended_by = models.CharField(max_length=150, blank=True, editable=False)

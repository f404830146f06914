"""One problem on one instance (or one cause on a group), from open to closed. Written by `cases.lifecycle` alone."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from healthboard.cases.states import OPEN, Resolution, State
from healthboard.fleet.models import Account, Instance, Pool, Workload
from healthboard.people.models import ApiToken
from healthboard.policies.models import PolicyVersion
from healthboard.repairs.models import Breaker, Repair

#: code of a case that a person opened by asking for an action
BY_HAND = "BY_HAND"


class Case(models.Model):
    account = models.ForeignKey(Account, on_delete=models.PROTECT)
    region = models.CharField(max_length=32)
    instance = models.ForeignKey(Instance, null=True, on_delete=models.PROTECT, related_name="cases")  # null: a group
    pool = models.ForeignKey(Pool, null=True, on_delete=models.PROTECT)
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="members")
    breaker = models.ForeignKey(Breaker, null=True, on_delete=models.PROTECT, related_name="cases")
    state = models.CharField(max_length=10, choices=[(s, s) for s in State])
    resolution = models.CharField(max_length=20, blank=True, choices=[(r, r) for r in Resolution])
    resolution_note = models.TextField(blank=True)
    verdict = models.CharField(max_length=12)
    action = models.CharField(max_length=16)  # proposed
    mode = models.CharField(max_length=8)  # auto, ask, observe: what the policy says
    mode_why = models.TextField(blank=True)  # in words, which rule and which policy
    may_act = models.BooleanField(default=False)
    code = models.CharField(max_length=64)  # the decisive one
    codes = models.JSONField(default=list)
    gpu = models.CharField(max_length=96, blank=True)
    title = models.CharField(max_length=255)
    why = models.TextField(blank=True)
    why_waiting = models.TextField(blank=True)
    victims = models.JSONField(default=list)  # instance ids
    workloads = models.ManyToManyField(Workload, blank=True)  # frozen when it opened
    plan = models.JSONField(default=dict)
    plan_version = models.PositiveIntegerField(default=1)
    evidence_hash = models.CharField(max_length=64)
    policy_version = models.ForeignKey(PolicyVersion, null=True, on_delete=models.PROTECT)
    opened_at = models.DateTimeField()
    changed_at = models.DateTimeField()  # of anything that a page shows
    evidence_at = models.DateTimeField()  # first evidence that a decision may rest on; later only after a release
    expires_at = models.DateTimeField(null=True)
    expired_at = models.DateTimeField(null=True)
    snoozed_until = models.DateTimeField(null=True)
    clear_since = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    tries = models.PositiveSmallIntegerField(default=0)  # repairs that ended without helping

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["instance"], condition=models.Q(state__in=[str(s) for s in OPEN]), name="one_open_case"
            )
        ]
        indexes = [models.Index(fields=["state", "-opened_at"], name="case_state")]

    def __str__(self) -> str:
        return f"case {self.pk}"

    @property
    def open(self) -> bool:
        return self.state != State.CLOSED

    @property
    def by_hand(self) -> bool:
        """A person asked for it, and no evidence has taken it over since."""
        return self.code == BY_HAND


class Evidence(models.Model):
    """What a reading rested on: events, readings, context, thresholds, clock, policies and circumstances; what it gave
    (`assessment`) and what the policy answered (`answer`). Append-only; see `cases.replay`."""

    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="evidence")
    at = models.DateTimeField()
    hash = models.CharField(max_length=64)
    verdict = models.CharField(max_length=12)
    inputs = models.JSONField()
    assessment = models.JSONField()
    answer = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["at", "id"], name="evidence_at")]


class Decision(models.Model):
    """Who or what chose an action, why, on which evidence and plan version."""

    class Kind(models.TextChoices):
        APPROVE = "approve", "approved"
        OVERRIDE = "override", "overridden"
        DISMISS = "dismiss", "dismissed"
        SNOOZE = "snooze", "snoozed"
        AUTO = "auto", "decided by policy"
        RELEASE = "release", "released"

    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="decisions")
    kind = models.CharField(max_length=10, choices=Kind)
    action = models.CharField(max_length=16, blank=True)
    reason = models.TextField(blank=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    actor = models.CharField(max_length=150)
    via = models.CharField(max_length=20)  # web, api, policy, command
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.SET_NULL)  # that it was given by
    #: exceptions that it allows, e.g. "terminate_first"
    allow = models.JSONField(default=list, db_default=models.Value([], models.JSONField()))
    plan_version = models.PositiveIntegerField()
    evidence_hash = models.CharField(max_length=64)
    policy_version = models.ForeignKey(PolicyVersion, null=True, on_delete=models.PROTECT)
    at = models.DateTimeField()
    undone_at = models.DateTimeField(null=True)
    undone_by = models.CharField(max_length=150, blank=True)
    # INV5: carried out once (a repair, or at once for dismiss and snooze), or refused with the reason
    outcome = models.CharField(max_length=10, default="PENDING")  # PENDING, DONE, REFUSED, UNDONE
    outcome_why = models.TextField(blank=True)
    repair = models.OneToOneField(Repair, null=True, on_delete=models.PROTECT, related_name="decision")


class WouldHave(models.Model):
    """What would have been done, had it not only been observed; once per case, action and mode. Append-only; written by
    `cases.shadow` alone."""

    class HeldBy(models.TextChoices):
        POLICY = "policy", "a policy observes"
        FLEET = "fleet", "the whole fleet observes"

    case = models.ForeignKey(Case, on_delete=models.CASCADE, related_name="would_have")
    held_by = models.CharField(max_length=8, choices=HeldBy)
    mode = models.CharField(max_length=8)  # auto: repaired by itself; ask: a person would have been asked
    action = models.CharField(max_length=16)
    code = models.CharField(max_length=64)  # the decisive one then
    verdict = models.CharField(max_length=12)
    gpus = models.PositiveIntegerField(default=0)  # of the instance
    why = models.TextField(blank=True)  # in words, as if it were switched on
    observed = models.TextField(blank=True)  # in words, what kept it from that
    policy_version = models.ForeignKey(PolicyVersion, null=True, on_delete=models.PROTECT)
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "would have"
        constraints = [
            models.UniqueConstraint(fields=["case", "held_by", "mode", "action"], name="would_have_once"),
        ]
        indexes = [models.Index(fields=["-at", "-id"], name="would_have_newest")]

    def save(self, *args, **kwargs):
        if self.pk is not None:
            raise TypeError("what would have been done is never changed")
        super().save(*args, **kwargs)

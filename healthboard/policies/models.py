"""What may be done alone, per workload. Each save makes a new immutable version; decisions keep the one they used."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Immutable(Exception):
    """A saved version was to be changed."""


class Policy(models.Model):
    """Who it matches, and settings; an empty setting is inherited from the less specific policy, in the end from the
    fleet default, whose empty settings take `policies.defaults`."""

    name = models.CharField(max_length=100, unique=True)
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False, editable=False)
    # matching; empty matches all
    account = models.CharField(max_length=12, blank=True)
    region = models.CharField(max_length=32, blank=True)
    cluster = models.CharField(max_length=255, blank=True)
    pool = models.CharField(max_length=255, blank=True)
    workload = models.CharField(max_length=255, blank=True, help_text="service name or task family")
    tags = models.JSONField(default=dict, blank=True)
    # the settings, by the names of `policies.fields`
    settings = models.JSONField(default=dict, blank=True)
    current = models.ForeignKey(
        "PolicyVersion", null=True, editable=False, on_delete=models.PROTECT, related_name="current_of"
    )

    class Meta:
        verbose_name_plural = "policies"
        constraints = [
            models.UniqueConstraint(fields=["is_default"], condition=models.Q(is_default=True), name="one_default")
        ]

    def __str__(self) -> str:
        return self.name


class PolicyVersion(models.Model):
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    data = models.JSONField()  # matching and settings as saved
    reason = models.CharField(max_length=255, blank=True)
    saved_at = models.DateTimeField()
    saved_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    saved_by_name = models.CharField(max_length=150)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["policy", "number"], name="policy_version_unique")]

    def __str__(self) -> str:
        return f"{self.data.get('name', self.policy_id)} v{self.number}"

    def save(self, *args, **kwargs):
        if self.pk is not None:
            raise Immutable("a policy version is never changed; save the policy to make a new one")
        super().save(*args, **kwargs)

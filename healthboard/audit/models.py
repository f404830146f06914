"""The append-only record: one row in the transaction of every state change, and the chain of seals over the rows.

Triggers in the database (`audit.guard`) refuse what these classes refuse, whoever asks.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models


class AppendOnly(Exception):
    """An audit row was to be changed or deleted."""


class AuditRow(models.Model):
    at = models.DateTimeField()
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="+"
    )
    actor = models.CharField(max_length=150)  # the name as text outlives the user
    via = models.CharField(max_length=20)
    verb = models.CharField(max_length=64)  # case.opened, repair.step, policy.saved …
    subject = models.CharField(max_length=100)  # case:12, repair:7, policy:3
    account = models.CharField(max_length=12, blank=True)
    region = models.CharField(max_length=32, blank=True)
    instance = models.CharField(max_length=32, blank=True)
    case_id = models.BigIntegerField(null=True)
    repair_id = models.BigIntegerField(null=True)
    summary = models.TextField()
    payload = models.JSONField(default=dict, null=True)  # may be purged; its hash stays
    payload_hash = models.CharField(max_length=64)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["-at"], name="audit_at"),
            models.Index(fields=["case_id"], name="audit_case"),
            models.Index(fields=["repair_id"], name="audit_repair"),
            models.Index(fields=["instance"], name="audit_instance"),
        ]

    def save(self, *args, **kwargs):
        if self.pk is not None:
            raise AppendOnly("audit rows are never changed")
        super().save(*args, **kwargs)

    def delete(self, *args, **kwargs):
        raise AppendOnly("audit rows are never deleted")


class Seal(models.Model):
    """One link of the chain: it fixes the place and the content of one row. Written by `audit.chain` alone."""

    position = models.BigIntegerField(primary_key=True)  # 1, 2, 3 … without a gap
    row = models.OneToOneField(AuditRow, on_delete=models.DO_NOTHING, db_constraint=False, related_name="seal")
    previous = models.CharField(max_length=64, blank=True)  # hash of the position before; empty at the first
    hash = models.CharField(max_length=64, unique=True)
    sealed_at = models.DateTimeField()

    def save(self, *args, **kwargs):
        raise AppendOnly("seals are written by the sealer")

    def delete(self, *args, **kwargs):
        raise AppendOnly("seals are never deleted")

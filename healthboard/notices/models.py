"""Outgoing messages, written with the change that they announce; receivers drop repeats by `key`."""

from __future__ import annotations

from django.db import models


class Notice(models.Model):
    key = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=32)  # case_waiting, case_expired, repair_failed, workload, breaker …
    to = models.CharField(max_length=200)  # "operators", "workload:<name>"
    subject = models.CharField(max_length=255)
    body = models.TextField(blank=True)
    link = models.CharField(max_length=255, blank=True)
    count = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    next_at = models.DateTimeField()
    attempts = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True)

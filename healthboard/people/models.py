"""Who may do what, where; and the tokens of people, services and nodes."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from healthboard import clock
from healthboard.fleet.models import Account, Instance


class Role(models.TextChoices):
    VIEWER = "viewer", "viewer"
    OPERATOR = "operator", "operator"
    APPROVER = "approver", "approver"
    ADMIN = "admin", "admin"


class Grant(models.Model):
    """A role for a person, in a scope; an empty part of the scope means all."""

    OIDC = "oidc"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="grants")
    role = models.CharField(max_length=10, choices=Role)
    account = models.ForeignKey(Account, null=True, blank=True, on_delete=models.CASCADE)
    region = models.CharField(max_length=32, blank=True)
    pool = models.CharField(max_length=255, blank=True, help_text="name of a pool; empty means all")
    #: empty: an admin gave it; `OIDC`: a group of the provider did, and takes it away again
    source = models.CharField(max_length=8, blank=True, editable=False, default="", db_default="")
    #: when the provider last said so, at a log-in; of a grant by an admin, when it was given
    confirmed_at = models.DateTimeField(editable=False, default=clock.now, db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "role", "account", "region", "pool"], name="grant_unique")
        ]

    def __str__(self) -> str:
        return f"{self.user} {self.role}"


class ServiceAccount(models.Model):
    """A user that is a program: it has no password, and never counts as one of several people."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="service")
    purpose = models.CharField(max_length=255)
    made_at = models.DateTimeField()
    made_by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return str(self.user)


class ApiToken(models.Model):
    """A bearer token of a person or service; only its hash is kept. It may what its user may, and no more than its own
    scope and place say."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=60, blank=True, default="", db_default="")
    scope = models.CharField(max_length=10, default="all", db_default="all")  # of `people.tokens.SCOPES`
    account = models.ForeignKey(Account, null=True, on_delete=models.CASCADE)
    region = models.CharField(max_length=32, blank=True, default="", db_default="")
    pool = models.CharField(max_length=255, blank=True, default="", db_default="")
    hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)


class Request(models.Model):
    """Something that takes two people, from the asking to its end; see `people.second`, its only writer."""

    STATES = {
        "WAITING": "waiting for a second person",
        "CONFIRMED": "confirmed",
        "REFUSED": "refused",
        "WITHDRAWN": "taken back",
        "EXPIRED": "expired",
    }

    kind = models.CharField(max_length=20)  # of `people.second.KINDS`
    subject = models.CharField(max_length=64)  # as in the audit record: breaker:5, repair:7
    what = models.CharField(max_length=255)
    reason = models.CharField(max_length=255)
    seen = models.CharField(max_length=64, blank=True)  # names what it was asked about
    account = models.ForeignKey(Account, null=True, on_delete=models.PROTECT)
    region = models.CharField(max_length=32, blank=True)
    pool = models.CharField(max_length=255, blank=True)
    asked_by = models.CharField(max_length=150)
    asked_by_user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.SET_NULL)
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    state = models.CharField(max_length=10, choices=STATES, default="WAITING")
    answered_by = models.CharField(max_length=150, blank=True)
    answered_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    answered_at = models.DateTimeField(null=True)
    answer = models.CharField(max_length=255, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"], condition=models.Q(state="WAITING"), name="one_waiting_request"
            )
        ]

    def __str__(self) -> str:
        return self.what


class NodeToken(models.Model):
    """The credential of one node: its reports concern that instance and no other."""

    instance = models.ForeignKey(Instance, on_delete=models.CASCADE, related_name="tokens")
    hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    #: the machine showed by STS who it is; else a person's command gave it
    enrolled = models.BooleanField(default=False, db_default=False)
    #: when it was first shown: until then nobody may have received it
    used_at = models.DateTimeField(null=True)


class SpentNonce(models.Model):
    """The nonce of a node's enrolment that was answered once, kept as long as it could be answered again."""

    hash = models.CharField(max_length=64, unique=True)
    at = models.DateTimeField(db_index=True)


class NodeRefusal(models.Model):
    """How often nodes, or whoever claimed to be one, were refused in one hour; see `people.refused`."""

    hour = models.DateTimeField()
    reason = models.CharField(max_length=60)
    instance = models.CharField(max_length=32, blank=True)  # EC2 id, where a credential proved it
    count = models.PositiveBigIntegerField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hour", "reason", "instance"], name="node_refusal_unique")]


class GivenPassword(models.Model):
    """Somebody else chose this person's password; gone when its person has chosen one. See `people.passwords`."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="given_password")
    at = models.DateTimeField()


class FailedLogin(models.Model):
    """A wrong password, kept only as long as it counts towards the limit."""

    name = models.CharField(max_length=150)  # lower case
    address = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["address", "name", "at"], name="failed_login")]


class SavedView(models.Model):
    """A list's query string under a name; see `people.saved`, its only writer."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="saved_views")
    page = models.CharField(max_length=20)  # name of the address: fleet, fleet_map
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, blank=True)
    shared = models.BooleanField(default=False)
    default = models.BooleanField(default=False)  # of `pool`, or of everybody
    pool = models.CharField(max_length=255, blank=True)
    own_default = models.BooleanField(default=False, db_default=False)  # what its owner starts with, before any pool's
    saved_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "page", "name"], name="saved_view_unique"),
            models.UniqueConstraint(
                fields=["user", "page"], condition=models.Q(own_default=True), name="saved_view_one_own_default"
            ),
            models.UniqueConstraint(
                fields=["page", "pool"], condition=models.Q(default=True), name="saved_view_one_default"
            ),
        ]

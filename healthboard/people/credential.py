"""Whose credential a node shows, and whether anything is asked of that node: what each report begins with.

Written out for PostgreSQL, since making this statement anew for each report took four times as long as carrying it out.
"""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.db.models import Exists, OuterRef

from healthboard.fleet.models import Instance, NodeRequest
from healthboard.people.models import NodeToken

#: what a report needs of its instance; of the rest each is read where it is asked for
OF_INSTANCE = frozenset({
    "id", "account", "region", "instance_id", "boot_id", "booted_at", "launched_at", "driver_version", "reporter_version",
    "gpus_expected", "gone_at",
})  # fmt: skip
_TOKEN = NodeToken._meta.concrete_fields
#: in the model's order, as `from_db` takes them
_INSTANCE = [field for field in Instance._meta.concrete_fields if field.name in OF_INSTANCE]
_COLUMNS = ", ".join(
    [f"token.{field.column}" for field in _TOKEN] + [f"instance.{field.column}" for field in _INSTANCE]
)
_FOUND = (
    f"select {_COLUMNS}, exists(select 1 from {NodeRequest._meta.db_table} as request "
    "where request.instance_id = instance.id and request.answered_at is null and request.expires_at > %s) "
    f"from {NodeToken._meta.db_table} as token join {Instance._meta.db_table} as instance on instance.id = token.instance_id "
    "where token.hash = %s"
)


def by_hash(digest: str, now: datetime) -> NodeToken | None:
    """The credential with its instance, dead or alive; ``asked`` of it: whether a verb waits that the node has not answered."""
    if connection.vendor != "postgresql":
        return through_models(digest, now)
    with connection.cursor() as cursor:
        cursor.execute(_FOUND, [now, digest])
        row = cursor.fetchone()
    if row is None:
        return None
    token = NodeToken.from_db(connection.alias, [field.attname for field in _TOKEN], row[: len(_TOKEN)])
    token.instance = Instance.from_db(connection.alias, [field.attname for field in _INSTANCE], row[len(_TOKEN) : -1])
    token.asked = row[-1]
    return token


def through_models(digest: str, now: datetime) -> NodeToken | None:
    """The same, as Django asks for it."""
    waiting = NodeRequest.objects.filter(instance=OuterRef("instance"), answered_at=None, expires_at__gt=now)
    return NodeToken.objects.select_related("instance").annotate(asked=Exists(waiting)).filter(hash=digest).first()

"""The cheap way for a node's report that says what the last one said: its head, that it was heard, and what its GPUs measure.

Nearly every report that there is comes here, with eight GPUs. The statements are written out, since making them anew took
longer than carrying them out; where the database can, they are one, since each way to it and back costs more than its work.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from healthboard.fleet import heads
from healthboard.fleet.models import Gpu, Head, Instance

_LAST_AT, _SEEN_AT, _MEASURED_AT = (
    kind._meta.get_field(name) for kind, name in ((Head, "last_at"), (Instance, "node_seen_at"), (Gpu, "measured_at"))
)


def _head(later: str) -> str:
    return (
        f"update {Head._meta.db_table} set last_at = {later}(last_at, %s), count = count + 1, seq = %s "
        "where instance_id = %s and channel = %s and digest = %s and boot_id = %s and seq < %s and last_at >= %s"
    )


def _gpus(instance: str, told: str) -> str:
    return (
        f"update {Gpu._meta.db_table} set measured_at = %s, measurements = told.value from {told} as told "
        f"where instance_id = {instance} and account_id = %s and uuid = told.key"
    )


_SEEN = f"update {Instance._meta.db_table} set node_seen_at = %s where id = "
#: each part needs what the one before it returns: so rows are locked in the order in which all others lock them
_TOGETHER = (
    f"with head as ({_head('greatest')} returning instance_id), "
    f"seen as ({_SEEN}(select instance_id from head) returning id), "
    f"measured as ({_gpus('(select id from seen)', 'jsonb_each(%s::jsonb)')} returning 1) "
    "select (select count(*) from head), (select count(*) from measured)"
)
_HEAD, _SEEN_ONE, _GPUS = _head("max"), f"{_SEEN}%s", _gpus("%s", "json_each(%s)")


def confirm(
    instance: Instance, channel: str, at: datetime, digest: str, *, boot_id: str, seq: int, received: datetime,
    measured: dict[str, Any] | None = None,
) -> int | None:  # fmt: skip
    """How many of the GPUs in `measured` (UUID -> measurements) were found as this instance's, and written. None: the round
    says something else than the last one, or came after a gap or out of order; then nothing is written: take `record_many`.

    Its number is the order: one that waited, and is dated before the last word, moves the head no further back.
    """
    now = _LAST_AT.get_db_prep_save(at, connection)
    gap = _LAST_AT.get_db_prep_save(at - heads.gap_after(channel), connection)
    head = [now, seq, instance.pk, channel, digest, boot_id, seq, gap]
    seen = _SEEN_AT.get_db_prep_save(received, connection)
    moment = _MEASURED_AT.get_db_prep_save(received, connection)
    told = json.dumps(heads.clean(measured or {}))
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_TOGETHER, [*head, seen, moment, told, instance.account_id])
            same, found = cursor.fetchone()
        return found if same else None
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_HEAD, head)
        if not cursor.rowcount:
            return None
        cursor.execute(_SEEN_ONE, [seen, instance.pk])
        cursor.execute(_GPUS, [moment, told, instance.pk, instance.account_id])
        return int(cursor.rowcount)

"""One change to the record, drawn by a seed, as somebody could make it who owns the database and lifts the triggers."""

from __future__ import annotations

import random
from collections.abc import Callable

from django.db import connection

from healthboard.audit import chain, guard
from healthboard.audit.models import AuditRow, Seal

COLUMNS = {
    "actor": "x", "verb": "x.y", "subject": "case:0", "summary": "x", "instance": "i-x", "via": "x", "account": "9",
    "region": "x", "request_id": "x", "payload_hash": "0" * 64, "case_id": 12345, "repair_id": 12345, "user_id": 12345,
    "at": "2001-01-01 00:00:00+00:00",
}  # fmt: skip


def sql(text: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, values)


def edit(draw: random.Random, rows: list[int]) -> None:
    column = draw.choice(sorted(COLUMNS))
    sql(f"UPDATE audit_auditrow SET {column} = %s WHERE id = %s", COLUMNS[column], draw.choice(rows))


def edit_payload(draw: random.Random, rows: list[int]) -> None:
    sql(
        "UPDATE audit_auditrow SET payload = %s WHERE id = %s",
        draw.choice(['{"n": -1}', "[]", None]),
        draw.choice(rows),
    )


def edit_seal(draw: random.Random, rows: list[int]) -> None:
    column, value = draw.choice(
        [("hash", "f" * 64), ("previous", "e" * 64), ("sealed_at", "2001-01-01 00:00:00+00:00")]
    )
    sql(f"UPDATE audit_seal SET {column} = %s WHERE row_id = %s", value, draw.choice(rows))


def delete(draw: random.Random, rows: list[int]) -> None:
    row = draw.choice(rows)
    sql("DELETE FROM audit_auditrow WHERE id = %s", row)
    if draw.random() < 0.5 and row != rows[-1]:
        sql("DELETE FROM audit_seal WHERE row_id = %s", row)


def delete_and_close_the_gap(draw: random.Random, rows: list[int]) -> None:
    """The row goes, and every later position moves up by one."""
    place = draw.randrange(len(rows) - 1)
    sql("DELETE FROM audit_auditrow WHERE id = %s", rows[place])
    sql("DELETE FROM audit_seal WHERE row_id = %s", rows[place])
    sql("UPDATE audit_seal SET position = -position WHERE position > %s", place + 1)
    sql("UPDATE audit_seal SET position = -position - 1 WHERE position < 0")


def reorder(draw: random.Random, rows: list[int]) -> None:
    one, two = draw.sample(rows, 2)
    table, key = draw.choice([("audit_seal", "row_id"), ("audit_auditrow", "id")])
    for old, new in ((one, -1), (two, one), (-1, two)):
        sql(f"UPDATE {table} SET {key} = %s WHERE {key} = %s", new, old)


def put_in(draw: random.Random, rows: list[int]) -> None:
    """A row between two others, with a seal of its own and every later position moved down."""
    place = draw.randrange(1, len(rows))
    copy = AuditRow.objects.get(pk=rows[0])
    values = {f.attname: getattr(copy, f.attname) for f in copy._meta.fields if f.attname != "id"}
    (new,) = AuditRow.objects.bulk_create([AuditRow(**values | {"verb": "forged"})])
    sql("UPDATE audit_seal SET position = -position WHERE position > %s", place)
    sql("UPDATE audit_seal SET position = -position + 1 WHERE position < 0")
    before = Seal.objects.get(position=place)
    row = AuditRow.objects.filter(pk=new.pk).values(*chain._SEALED).get()
    made = chain.link(before.hash, place + 1, before.sealed_at, row)
    Seal.objects.bulk_create(
        [Seal(position=place + 1, row_id=new.pk, previous=before.hash, hash=made, sealed_at=before.sealed_at)]
    )


def cut(draw: random.Random, rows: list[int]) -> None:
    place = draw.randrange(len(rows))
    sql("DELETE FROM audit_seal WHERE position > %s", place)
    sql("DELETE FROM audit_auditrow WHERE id NOT IN (SELECT row_id FROM audit_seal)")


def rewrite(draw: random.Random, rows: list[int]) -> None:
    """An edit, and the whole chain computed anew over it."""
    edit(draw, rows)
    sql("UPDATE audit_auditrow SET payload_hash = payload_hash")
    sql("DELETE FROM audit_seal")
    chain.seal()


KINDS: tuple[Callable[[random.Random, list[int]], None], ...] = (
    edit, edit_payload, edit_seal, delete, delete_and_close_the_gap, reorder, put_in, cut, rewrite,
)  # fmt: skip


def tamper(seed: int) -> str:
    """Change the sealed record of this database by the kind that the seed draws; returns the kind's name."""
    draw = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    guard.remove(connection)
    kind(draw, list(Seal.objects.order_by("position").values_list("row_id", flat=True)))
    guard.install(connection)
    return kind.__name__

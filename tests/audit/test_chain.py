"""Every change of the record is found and named; what is not a change is not."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from healthboard import clock
from healthboard.audit import chain, guard, heads
from healthboard.audit.models import AuditRow, Seal
from healthboard.audit.record import digest, record
from healthboard.people.actors import system
from tests import factories
from workers.verify import sealing


def broken() -> list[str]:
    return chain.verify().broken


def test_a_whole_chain_verifies_and_is_sealed_once(rows):
    assert broken() == [] and chain.seal() == 0
    assert list(Seal.objects.order_by("position").values_list("position", "row_id")) == [
        (n, row.pk) for n, row in enumerate(rows, 1)
    ]


COLUMNS = [
    ("actor", "somebody else"), ("verb", "other"), ("summary", "nothing happened"), ("user_id", 7), ("case_id", 3),
    ("at", "2020-01-01 00:00:00+00:00"), ("payload_hash", "0" * 64), ("request_id", "x"), ("subject", "case:99"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "value"), COLUMNS, ids=[c for c, _ in COLUMNS])
def test_an_edit_of_any_column_names_the_row(rows, forge, column, value):
    forge(f"UPDATE audit_auditrow SET {column} = %s WHERE id = %s", value, rows[4].pk)
    assert any(f"row {rows[4].pk} (position 5)" in line for line in broken())
    assert not any(f"row {row.pk} " in line for row in rows if row is not rows[4] for line in broken())


def test_an_edited_payload_names_the_row(rows, forge):
    forge("UPDATE audit_auditrow SET payload = %s WHERE id = %s", json.dumps({"n": 99}), rows[2].pk)
    assert broken() == [f"the payload of row {rows[2].pk} (position 3) was changed"]


def test_a_deleted_row_is_named_with_and_without_its_seal(rows, forge):
    forge("DELETE FROM audit_auditrow WHERE id IN (%s, %s)", rows[3].pk, rows[7].pk)
    forge("DELETE FROM audit_seal WHERE row_id = %s", rows[7].pk)
    assert f"row {rows[3].pk} (position 4) was deleted" in broken()
    assert f"position 8 is missing before row {rows[8].pk}" in broken()


def test_rows_that_changed_places_are_named(rows, forge):
    forge("UPDATE audit_seal SET row_id = -1 WHERE position = 3")
    forge("UPDATE audit_seal SET row_id = %s WHERE position = 6", rows[2].pk)
    forge("UPDATE audit_seal SET row_id = %s WHERE position = 3", rows[5].pk)
    named = "\n".join(broken())
    assert f"row {rows[5].pk} (position 3)" in named and f"row {rows[2].pk} (position 6)" in named


def test_a_row_put_in_behind_is_named_sealed_or_not(rows, forge):
    """A free id in the middle, as a rolled-back transaction leaves one."""
    gap = rows[5].pk
    forge("DELETE FROM audit_auditrow WHERE id = %s", gap)
    forge("DELETE FROM audit_seal WHERE position >= 6")
    chain.seal()  # as if there never had been a row with that id
    assert broken() == []
    with clock.virtual(clock.now() + timedelta(minutes=20)):
        factories.audit("later", "later", by=system("test"))
        chain.seal()
        copy = AuditRow.objects.get(pk=rows[0].pk)
        AuditRow.objects.bulk_create([AuditRow(**{f.attname: getattr(copy, f.attname) for f in copy._meta.fields}
                                               | {"id": gap, "verb": "forged"})])  # fmt: skip
        chain.seal()
    assert any(f"row {gap} " in line and "put in behind" in line for line in broken())


def test_a_row_far_behind_the_newest_is_named(rows, monkeypatch):
    monkeypatch.setattr(chain, "WINDOW", 3)
    copy = AuditRow.objects.get(pk=rows[0].pk)
    values = {f.attname: getattr(copy, f.attname) for f in copy._meta.fields}
    AuditRow.objects.bulk_create([AuditRow(**values | {"id": rows[0].pk - 1000})])
    assert chain.seal() == 0
    assert any(f"row {rows[0].pk - 1000} " in line for line in broken())


def test_a_chain_that_was_computed_anew_does_not_hold_the_head(rows, forge, capsys):
    head = chain.end().hash
    forge("UPDATE audit_auditrow SET summary = 'all was well' WHERE id = %s", rows[4].pk)
    forge("DELETE FROM audit_seal")
    chain.seal()
    assert broken() == []
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit", head=head)
    assert ended.value.code == 1 and head in capsys.readouterr().out


def test_a_cut_tail_is_seen_by_the_newest_head_that_is_known(rows, forge, capsys):
    sealing.come_round()
    call_command("verify_audit")
    assert "verified against: head of" in capsys.readouterr().out
    call_command("verify_audit", head=chain.end().hash.upper())
    forge("DELETE FROM audit_seal WHERE position > 9")
    forge("DELETE FROM audit_auditrow WHERE id > %s", rows[8].pk)
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit")
    assert ended.value.code == 1 and f"position 12, row {rows[11].pk}" in capsys.readouterr().out


def test_without_a_head_it_says_what_it_cannot_see(rows, capsys):
    call_command("verify_audit")
    assert "a tail that was cut off would not be seen" in capsys.readouterr().out


@pytest.mark.parametrize("head", ["x", "0" * 63, "0" * 65])
def test_a_head_that_is_none_is_a_bad_argument(db, head):
    with pytest.raises(CommandError) as error:
        call_command("verify_audit", head=head)
    assert error.value.returncode == 2


def test_a_missing_trigger_is_named(rows):
    guard.remove(connection)
    assert len(broken()) >= 4 and all("trigger" in line for line in broken())


def test_rows_and_seals_cannot_be_changed_or_deleted_by_sql(rows):
    tries = [
        "UPDATE audit_auditrow SET summary = 'x'", "UPDATE audit_auditrow SET payload = '{}'",
        "UPDATE audit_auditrow SET payload = NULL, actor = 'x'", "DELETE FROM audit_auditrow",
        "UPDATE audit_seal SET hash = 'x'", "DELETE FROM audit_seal",
        "UPDATE audit_seal SET position = position + 100",
    ]  # fmt: skip
    if connection.vendor == "postgresql":
        tries += ["TRUNCATE audit_auditrow", "TRUNCATE audit_seal"]
    else:
        tries += ["REPLACE INTO audit_seal SELECT position, previous, 'x', sealed_at, row_id FROM audit_seal"]
    for sql in tries:
        with pytest.raises(DatabaseError, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)
    assert broken() == []


def test_payloads_are_purged_and_the_chain_still_verifies(rows, forge, capsys):
    later = clock.now() + timedelta(seconds=5)
    with clock.virtual(later):
        call_command("audit_purge", before=later.isoformat())
        assert "12 payloads purged" in capsys.readouterr().out
        chain.seal()
    assert not AuditRow.objects.filter(pk__lte=rows[-1].pk).exclude(payload=None).exists() and broken() == []
    assert AuditRow.objects.latest("pk").verb == chain.PURGED
    forge("UPDATE audit_auditrow SET payload = NULL WHERE verb = %s", chain.PURGED)
    assert any("lost its payload, and no purge" in line for line in broken())


@pytest.mark.parametrize("before", ["yesterday", "2999-01-01"])
def test_a_purge_with_a_bad_time_changes_nothing(rows, before):
    with pytest.raises(CommandError) as error:
        call_command("audit_purge", before=before)
    assert error.value.returncode == 2 and AuditRow.objects.filter(payload=None).count() == 0


def test_what_a_database_would_refuse_or_rewrite_is_kept_in_a_form_that_stays(db):
    odd = {"nul\0": "a\0b", "lone": "\ud83d", "pair": "\U0001f525", "big": 1e16, "zero": -0.0, "small": 1e-9,
           "nan": float("nan"), "deep": [{"x": (1.5, 10.0, 2**70)}]}  # fmt: skip
    with transaction.atomic():
        row = record("odd", "test", "told\0 \udc80", actor=system("test"), payload=odd)
    chain.seal()
    kept = AuditRow.objects.get(pk=row.pk)
    assert digest(kept.payload) == kept.payload_hash and broken() == []
    assert kept.payload["pair"] == "\U0001f525" and kept.payload["small"] == 1e-9


def test_heads_are_appended_hourly_and_survive_a_torn_line(rows, home):
    log = home / "audit-heads.log"
    sealing.come_round()
    sealing.come_round()
    assert len(log.read_text().splitlines()) == 1
    with log.open("a") as out:
        out.write('{"at": "20')
    factories.audit("more", "more", by=system("test"))
    with clock.virtual(clock.now() + timedelta(minutes=61)):
        sealing.come_round()
        (head, _, _) = heads.newest()
    lines = log.read_text().splitlines()
    assert len(lines) == 3 and json.loads(lines[-1])["position"] == head.position == 13


def test_a_head_log_that_cannot_be_written_is_told_and_stops_nothing(rows, home, monkeypatch):
    from healthboard.fleet.models import Pulse

    (home / "file").write_text("")
    monkeypatch.setenv("HEALTHBOARD_AUDIT_HEADS", str(home / "file" / "heads.log"))
    sealing.come_round()
    pulse = Pulse.objects.get(name="audit")
    assert not pulse.ok and "cannot be kept" in pulse.detail["problem"]

"""Two roles on the real server: one owns the tables, the other runs the processes. And many writers at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction

from healthboard.audit import chain
from healthboard.audit.models import AuditRow, Seal
from healthboard.people.actors import system
from tests import factories
from tests.loop.stack import ROOT, Stack
from workers.verify import sealing

pytestmark = pytest.mark.skipif("sqlite" in settings.DATABASES["default"]["ENGINE"], reason="roles are PostgreSQL's")


def sql(text: str, *values):
    with connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def roles(db):
    """hb_owner owns the audit tables, hb_app has what the command gives it; gone with the test's transaction."""
    sql("CREATE ROLE hb_owner; CREATE ROLE hb_app; GRANT USAGE, CREATE ON SCHEMA public TO hb_owner")
    for (table,) in sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        sql(f'ALTER TABLE "{table}" OWNER TO hb_owner')
    with being("hb_owner"):
        call_command("grants", "hb_app")


@contextmanager
def being(role: str):
    sql(f"SET ROLE {role}")
    try:
        yield
    finally:
        sql("RESET ROLE")


def refused(text: str, word: str) -> None:
    with pytest.raises(DatabaseError, match=word), transaction.atomic():
        sql(text)


def test_the_app_role_writes_seals_and_verifies_and_changes_nothing(roles, capsys):
    with being("hb_app"):
        factories.audit("role.test", "said", by=system("test"))
        sealing.come_round()
        call_command("verify_audit")
        assert "every row is as it was sealed" in capsys.readouterr().out
        for text in (
            "UPDATE audit_auditrow SET summary = 'x'", "UPDATE audit_auditrow SET payload = NULL",
            "DELETE FROM audit_auditrow", "TRUNCATE audit_auditrow", "UPDATE audit_seal SET hash = 'x'",
            "DELETE FROM audit_seal", "TRUNCATE audit_seal", "DELETE FROM django_migrations",
        ):  # fmt: skip
            refused(text, "permission denied")
        for text in (
            "ALTER TABLE audit_auditrow DISABLE TRIGGER ALL", "DROP TRIGGER audit_rows_stay ON audit_auditrow",
            "DROP TABLE audit_seal",
        ):  # fmt: skip
            refused(text, "must be owner")
        with pytest.raises(CommandError, match="permission denied"), transaction.atomic():
            call_command("audit_purge", before="2000-01-01")


def test_the_owner_changes_nothing_but_purges_payloads(roles):
    row = factories.audit("role.test", "said", by=system("test"), payload={"n": 1})
    with being("hb_owner"):
        for text in (
            "UPDATE audit_auditrow SET summary = 'x'", "DELETE FROM audit_auditrow", "TRUNCATE audit_auditrow",
            "UPDATE audit_seal SET hash = 'x'", "DELETE FROM audit_seal", "TRUNCATE audit_seal",
        ):  # fmt: skip
            if "seal" in text:
                chain.seal()
            refused(text, "never changed")
        sql("UPDATE audit_auditrow SET payload = NULL WHERE id = %s", row.pk)


def test_a_role_that_was_given_the_right_to_update_purges_nothing(roles):
    """The trigger asks who owns the table, not only who may."""
    factories.audit("role.test", "said", by=system("test"))
    sql("GRANT UPDATE ON audit_auditrow TO hb_app")
    with being("hb_app"):
        refused("UPDATE audit_auditrow SET payload = NULL", "never changed")


@pytest.mark.parametrize(
    ("role", "word"),
    [("hb_owner", "owns the tables"), ("postgres", "superuser"), ("no'one", "no role"), ("", "no role")],
)
def test_a_role_that_would_limit_nothing_is_refused(roles, role, word):
    with pytest.raises(CommandError, match=word) as error:
        call_command("grants", role)
    assert error.value.returncode == 2


def test_a_start_with_two_roles_migrates_as_the_one_and_runs_as_the_other(tmp_path):
    where = urlsplit(os.environ["DATABASE_URL"])
    server = psycopg.connect(where.geturl(), autocommit=True)
    for text in ("CREATE ROLE hb_a LOGIN", "CREATE ROLE hb_o LOGIN", "CREATE DATABASE two_roles OWNER hb_o"):
        server.execute(text)
    try:
        owner, app = (f"postgres://{role}@{where.hostname}:{where.port}/two_roles" for role in ("hb_o", "hb_a"))
        stack = Stack(tmp_path, DATABASE_URL=app, DATABASE_OWNER_URL=owner)
        start = "from healthboard.supervisor import Supervisor;Supervisor().database()"
        subprocess.run([sys.executable, "-c", start], cwd=ROOT, env=stack.env, check=True, capture_output=True)
        done = stack.manage("verify_audit")
        assert "every row is as it was sealed" in done.stdout
        with psycopg.connect(app) as mine, pytest.raises(psycopg.errors.InsufficientPrivilege):
            mine.execute("DELETE FROM audit_auditrow")
    finally:
        server.execute("DROP DATABASE two_roles WITH (FORCE)")
        server.execute("DROP ROLE hb_a")
        server.execute("DROP ROLE hb_o")
        server.close()


@pytest.mark.django_db(transaction=True)
def test_a_row_of_a_long_transaction_is_sealed_when_it_is_committed():
    """While it is open, later rows of others are sealed; it then follows them, and nothing is broken."""
    opened, go = threading.Event(), threading.Event()

    def slow() -> None:
        try:
            with transaction.atomic():
                factories.audit("slow", "slow", by=system("test"))
                opened.set()
                go.wait(10)
        finally:
            connection.close()

    thread = threading.Thread(target=slow)
    thread.start()
    assert opened.wait(10)
    factories.audit("fast", "fast", by=system("test"))
    assert chain.seal() == 1
    go.set()
    thread.join(10)
    assert chain.seal() == 1
    order = list(Seal.objects.order_by("position").values_list("row__verb", "row_id"))
    assert [verb for verb, _ in order] == ["fast", "slow"] and order[0][1] > order[1][1]
    assert chain.verify().broken == []


@pytest.mark.django_db(transaction=True)
def test_sealers_and_writers_at_once_make_one_chain():
    failed: list[Exception] = []

    def work(what) -> None:
        try:
            for n in range(30):
                what(n)
        except Exception as error:
            failed.append(error)
        finally:
            connection.close()

    writers = [lambda n: factories.audit("race", str(n), by=system("test"))] * 3
    threads = [threading.Thread(target=work, args=(what,)) for what in [*writers, *[lambda n: chain.seal()] * 3]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    chain.seal()
    assert failed == [] and chain.verify().broken == []
    assert Seal.objects.count() == AuditRow.objects.count() == 90 == chain.end().position

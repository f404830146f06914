"""`python -m healthboard.processes prepare`: with two roles, again, twice at once, beside others; and nothing starts without."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from healthboard import processes
from healthboard.config import ROOT

pytestmark = pytest.mark.skipif(
    "sqlite" in settings.DATABASES["default"]["ENGINE"], reason="two roles are PostgreSQL's"
)
NAME = "prepared"
WHO = "from django.db import connection as c; k = c.cursor(); k.execute('SELECT current_user'); print(k.fetchone()[0])"


@pytest.fixture(scope="module")
def server():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connected:
        for text in ("CREATE ROLE prep_o LOGIN", "CREATE ROLE prep_a LOGIN", f"CREATE DATABASE {NAME} OWNER prep_o"):
            connected.execute(text)
        yield connected
        connected.execute(f"DROP DATABASE {NAME} WITH (FORCE)")
        connected.execute("DROP ROLE prep_o")
        connected.execute("DROP ROLE prep_a")


@pytest.fixture(scope="module")
def env(server, tmp_path_factory):
    """Of an installation in aws mode whose database is empty."""
    where = urlsplit(os.environ["DATABASE_URL"])
    owner, app = (f"postgres://{role}@{where.hostname}:{where.port}/{NAME}" for role in ("prep_o", "prep_a"))
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HEALTHBOARD_")},
        "HEALTHBOARD_MODE": "aws", "HEALTHBOARD_HOME": str(tmp_path_factory.mktemp("home")),
        "HEALTHBOARD_ACCOUNTS": "123456789012", "HEALTHBOARD_REGIONS": "eu-west-1",
        "DATABASE_URL": app, "DATABASE_OWNER_URL": owner,
    }  # fmt: skip


def begin(env: dict[str, str], *name: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "healthboard.processes", *(name or ("prepare",))], cwd=ROOT, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(child: subprocess.Popen) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=180)
    return child.returncode, out, err


def refused(env: dict[str, str], name: str = "prepare") -> str:
    code, out, err = ended(begin(env, name))
    (line,) = err.strip().splitlines()
    assert (code, out) == (1, ""), out
    return line


@pytest.mark.parametrize("name", ["web", "actor"])
def test_nothing_starts_on_a_database_that_was_not_prepared(env, name):
    line = refused(env, name)
    assert line == (
        "healthboard cannot start: the database lacks migrations: run python -m healthboard.processes prepare"
    )


def test_a_command_of_an_installation_says_nothing_of_the_sandbox(env):
    code, _, err = ended(begin(env, "manage", "check_invariants"))
    assert code == 2 and "the database is not ready: relation" in err and "sandbox" not in err


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"DATABASE_URL": ""}, "needs DATABASE_URL: postgres://"),
        ({"DATABASE_URL": "sqlite:///x"}, "needs DATABASE_URL: postgres://"),
        ({"HEALTHBOARD_REGIONS": ""}, "needs HEALTHBOARD_REGIONS"),
        ({"DATABASE_OWNER_URL": "postgres://prep_o@127.0.0.1:1/x"}, "Connection refused"),
        ({"DATABASE_OWNER_URL": "", "DATABASE_OWNER_URL_FILE": "/nowhere"}, "/nowhere cannot be read"),
    ],
)
def test_what_is_missing_is_one_line(env, wrong, word):
    line = refused({**env, **wrong})
    assert line.startswith("healthboard cannot be prepared: ") and word in line


def test_two_at_once_on_an_empty_database_and_then_again(env, server):
    both = [ended(child) for child in [begin(env), begin(env)]]
    assert [code for code, _, _ in both] == [0, 0], both
    assert sorted("no migrations to apply" in out for _, out, _ in both) == [False, True], both
    assert any("another one prepares this database: waiting for it" in out for _, out, _ in both)
    code, out, _ = ended(begin(env))
    assert code == 0 and out.splitlines() == [
        "no migrations to apply", "prep_a may add to the audit record and read it, and write everything else",
        "prepared: start the processes",
    ]  # fmt: skip
    with psycopg.connect(env["DATABASE_URL"]) as app:
        assert app.execute("SELECT count(*), bool_or(acting) FROM repairs_switch").fetchone() == (1, False)
        assert app.execute("SELECT mode FROM fleet_installation").fetchall() == [("aws",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            app.execute("DELETE FROM audit_auditrow")


def test_the_first_admin_is_made_by_commands_whose_words_hold_no_password(env):
    """After test_two_at_once…: as `aws ecs run-task` gives them, in the environment of a task."""
    env = {**env, "DJANGO_SUPERUSER_PASSWORD": "Taken from a parameter", "HEALTHBOARD_OIDC_ISSUER": "https://sso.example.com",
           "HEALTHBOARD_OIDC_CLIENT_ID": "board"}  # fmt: skip
    assert ended(begin(env))[0] == 0, "and nor does `prepare` need the secret of the log-in pages"
    made = ["createsuperuser", "--noinput", "--username", "first", "--email", "first@example.com"]
    assert ended(begin(env, "manage", *made)) == (0, "Superuser created successfully.\n", "")
    assert ended(begin(env, "manage", "give-role", "first", "admin"))[0] == 0
    with psycopg.connect(env["DATABASE_URL"]) as app:
        ((kept,),) = app.execute("SELECT password FROM auth_user WHERE username = 'first'").fetchall()
    assert PBKDF2PasswordHasher().verify("Taken from a parameter", kept), "the tests know a faster one alone"
    code, _, err = ended(begin(env, "manage", "probe_aws", "--yes", "123456789012", "--region", "eu-west-1"))
    assert code == 2 and "makes no" in err, "it has no rights in AWS, and never the worker's"


def test_a_command_is_the_role_of_the_processes_and_what_only_the_owner_may_is_the_owner(env):
    """After test_two_at_once…"""
    code, out, err = ended(begin(env, "manage", "shell", "--no-imports", "-c", WHO))
    assert (code, out.strip()) == (0, "prep_a"), err
    code, out, err = ended(begin(env, "manage", "purge"))
    assert code == 0 and "audit_payloads: 0 older than" in out, err
    old = ["manage", "audit_purge", "--before", "2020-01-01"]
    assert ended(begin(env, *old)) == (0, "0 payloads purged\n", "")
    code, out, err = ended(begin({**env, "DATABASE_OWNER_URL": ""}, *old))
    assert code == 2 and "the payloads stay: permission denied" in err, "so it was the owner"


def test_a_role_without_rights_is_told_to_prepare(env):
    """After test_two_at_once…: tables are there, and a new role may not read them."""
    with psycopg.connect(env["DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute("REVOKE SELECT ON django_migrations FROM prep_a")
        try:
            line = refused(env, "web")
        finally:
            owner.execute("GRANT SELECT ON django_migrations TO prep_a")
    assert "this role may not use the database (permission denied" in line and "processes prepare" in line


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"HEALTHBOARD_MODE": "sandbox"}, "belongs to mode aws, but HEALTHBOARD_MODE is sandbox"),
        ({"DATABASE_URL": "prep_none"}, "there is no role prep_none: CREATE ROLE it first"),
        ({"DATABASE_URL": "prep_o"}, "prep_o is a superuser or owns the tables"),
    ],
)
def test_a_database_or_role_of_another_kind_is_one_line(env, wrong, word):
    if "DATABASE_URL" in wrong:
        wrong = {"DATABASE_URL": env["DATABASE_URL"].replace("prep_a", wrong["DATABASE_URL"])}
    assert word in refused({**env, **wrong})


def test_a_database_that_is_newer_than_the_code_starts(env):
    """The release before goes on, and may be started again, after the database was prepared for the next one."""
    with psycopg.connect(env["DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('repairs', '9999_of_the_next', now())"
        )
        try:
            done = subprocess.run(
                [sys.executable, "-c", "from healthboard import processes; print(repr(processes.unprepared()))"],
                cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
        finally:
            owner.execute("DELETE FROM django_migrations WHERE name = '9999_of_the_next'")
    assert done.stdout.strip() == "''"


@pytest.mark.parametrize("name", [*processes.NAMES, "all"])
def test_no_process_keeps_the_way_to_the_databases_owner(name):
    given = {"DATABASE_URL": "a", "DATABASE_OWNER_URL": "b", "DATABASE_OWNER_URL_FILE": "/c"}
    assert [key for key in processes.environment(name, given) if key.startswith("DATABASE")] == ["DATABASE_URL"]

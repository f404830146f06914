"""Stacks for the loop tests: each module has its own, with its own database, fleet and broker."""

from __future__ import annotations

import os
import secrets

import psycopg
import pytest

from tests.loop.stack import Stack
from tests.services import MIGRATED


def new_database(*, migrated: bool = False) -> str:
    """A database of its own in the tests' PostgreSQL cluster; `migrated` already, where the run has one that is."""
    base = os.environ["DATABASE_URL"]
    name = f"loop_{secrets.token_hex(4)}"
    with psycopg.connect(base, autocommit=True) as connection:
        there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [MIGRATED]).fetchone()
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{MIGRATED if migrated and there else "template1"}"')
    return base.rpartition("/")[0] + "/" + name


#: time-outs of the policy are divided by the sandbox's speed too: on a busy machine they would end tests, not repairs
PATIENT = {"launch_timeout_s": 9000, "drain_timeout_s": 9000, "reboot_timeout_s": 9000}


def set_default_policy(stack: Stack, **settings) -> None:
    settings = {**PATIENT, **settings}
    stack.shell(
        "from healthboard.policies.models import Policy;from healthboard.policies.versions import save;"
        "from healthboard.people.actors import system;"
        f"p=Policy.objects.get(is_default=True);p.settings={{**p.settings, **{settings!r}}};"
        "save(p, actor=system('test'), reason='test')"
    )


#: both end by `sys.exit` where they find anything
SOUND = """
from django.core.management import call_command
call_command("replay", since="1d")
call_command("check_invariants")
"""


@pytest.fixture(scope="module")
def make_stack(tmp_path_factory):
    made: list[Stack] = []

    def make(*, postgres: bool = True, speed: float = 30, start: bool = True, **env: str) -> Stack:
        more = {"DATABASE_URL": new_database(migrated=True), "HEALTHBOARD_CONCURRENCY": "2"} if postgres else {}
        stack = Stack(
            tmp_path_factory.mktemp("stack"), HEALTHBOARD_SANDBOX_SPEED=str(speed),
            **more, **env,
        )  # fmt: skip
        made.append(stack)
        if start:
            stack.start()
            stack.until(
                lambda: _watching_over(stack), 150, "every node to report and the sources to be watched", every=2
            )
        return stack

    yield make
    broken = []
    for stack in made:
        if stack.process and stack.process.poll() is None:
            broken += unsound(stack)
            stack.stop()
    assert not broken, broken


def unsound(stack: Stack) -> list[str]:
    """What replaying its evidence or checking its invariants found; nothing where it is sound."""
    try:
        stack.shell(SOUND)
    except AssertionError as broken:
        return [str(broken)]
    return []


def _watching_over(stack: Stack) -> bool:
    told = stack.shell(
        "from healthboard.fleet.models import *;"
        "print(Instance.objects.filter(gone_at=None, node_seen_at=None).exclude(pool=None).count(),"
        "Instance.objects.count(), Source.objects.exclude(name='node').filter(good_rounds__lt=2).count())"
    ).split()
    return told[0] == "0" and int(told[1]) > 0 and told[2] == "0"

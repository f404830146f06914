"""`make run` as a newcomer has it: SQLite, embedded Valkey, default speed; started twice; clear lines when it cannot.

One installation for all of it: the last test ends its supervisor for good.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.loop.conftest import unsound
from tests.loop.stack import ROOT, Stack, changing

pytestmark = pytest.mark.loop


@pytest.fixture(scope="module")
def demo(make_stack):
    return make_stack(postgres=False, speed=10, start=False).start()


def test_the_whole_loop_runs_on_sqlite_at_the_default_speed_and_a_second_start_finds_the_same_fleet(demo: Stack):
    demo.until(lambda: demo.cases() is not None and len(demo.members("solo")) == 14, 120, "the fleet")
    demo.until(_all_told(demo), 120, "all sources to be watched", every=2)
    first = {i["instance_id"] for i in demo.fleet()["instances"]}
    instance = demo.members("solo")[0]
    demo.inject(instance, "XID_79", "--gpu", "3")
    demo.case_of(instance, 15)
    killed = demo.kill("worker")
    demo.until(lambda: demo.pid("worker") != killed, 15, "the worker to come back")
    assert demo.closed(instance, 180)["resolution"] == "REPAIRED"
    assert len(changing(demo.fleet(), "TerminateInstances", target=instance)) == 1
    assert len(changing(demo.fleet(), "RunInstances")) == 1

    pids = {name: demo.pid(name) for name in ("web", "worker", "beat", "sandbox", "valkey")}
    demo.stop()
    for name, pid in pids.items():
        assert not os.path.exists(f"/proc/{pid}"), f"{name} is still there"
    demo.start()
    second = {i["instance_id"] for i in demo.fleet()["instances"]}
    assert first <= second
    assert demo.closed(instance, 5)["resolution"] == "REPAIRED"


def _all_told(stack: Stack):
    code = (
        "from healthboard.fleet.models import *;"
        "print(Source.objects.exclude(name='node').filter(good_rounds__lt=2).count(), Instance.objects.filter("
        "pool__name='solo', node_seen_at=None).count(), Instance.objects.count() > 40)"
    )
    return lambda: stack.shell(code) == "0 0 True"


def test_what_cannot_start_says_so_in_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        stack = Stack(tmp_path / "a")
        stack.env["PORT"] = str(taken.getsockname()[1])
        assert "set PORT" in _one_line(stack)
    stack = Stack(tmp_path / "b", REDIS_URL="redis://127.0.0.1:1/0")
    assert "REDIS_URL does not answer" in _one_line(stack)
    stack = Stack(tmp_path / "c", HEALTHBOARD_MODE="nonsense")
    assert "HEALTHBOARD_MODE" in _one_line(stack)
    stack = Stack(tmp_path / "d", HEALTHBOARD_SANDBOX_SPEED="fast")
    assert "HEALTHBOARD_SANDBOX_SPEED" in _one_line(stack)
    stack = Stack(tmp_path / "p", HEALTHBOARD_SANDBOX_POOLS="train")
    assert "HEALTHBOARD_SANDBOX_POOLS" in _one_line(stack)
    stack = Stack(tmp_path / "e", HEALTHBOARD_MODE="aws")
    assert "DATABASE_URL" in _one_line(stack)


def test_a_database_of_the_other_mode_is_refused(demo: Stack, tmp_path):
    stack = Stack(tmp_path / "f")
    stack.home.mkdir()
    with closing(_database(demo)) as kept, closing(_database(stack)) as copy:
        kept.backup(copy)
        assert copy.execute("UPDATE fleet_installation SET mode = 'aws' WHERE mode = 'sandbox'").rowcount == 1
        copy.commit()
    assert "belongs to mode aws" in _one_line(stack)


def _database(stack: Stack) -> sqlite3.Connection:
    return sqlite3.connect(stack.home / "healthboard.sqlite3")


def test_aws_mode_without_credentials_says_so(tmp_path):
    stack = Stack(
        tmp_path / "g", HEALTHBOARD_MODE="aws", DATABASE_URL="postgres://x@127.0.0.1:1/x", REDIS_URL="redis://127.0.0.1:1/0",
        HEALTHBOARD_ACCOUNTS="111122223333", HEALTHBOARD_REGIONS="us-east-1", AWS_EC2_METADATA_DISABLED="true",
        HOME=str(tmp_path),
    )  # fmt: skip
    assert "No AWS credentials" in _one_line(stack)


def _one_line(stack: Stack) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "healthboard.supervisor"],
        cwd=ROOT,
        env=stack.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def test_everything_ends_with_the_supervisor_even_when_it_is_killed(demo: Stack):
    assert unsound(demo) == []
    pids = [demo.pid(name) for name in ("web", "worker", "beat", "sandbox", "valkey")]
    demo.process.send_signal(signal.SIGKILL)
    demo.process.wait(10)
    demo.stop()  # what the test itself holds of it
    for _ in range(150):
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return
        time.sleep(0.1)
    raise AssertionError([pid for pid in pids if os.path.exists(f"/proc/{pid}")])

"""What cannot work says so in one line, whatever is wrong with the environment."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.loop.stack import ROOT, Stack
from tests.services import spare_port

SETTINGS = [
    ({"PORT": "70000"}, "PORT=70000"),
    ({"PORT": "http"}, "PORT"),
    ({"HEALTHBOARD_SANDBOX_SPEED": "nan"}, "HEALTHBOARD_SANDBOX_SPEED"),
    ({"HEALTHBOARD_SANDBOX_POOLS": "train"}, "HEALTHBOARD_SANDBOX_POOLS"),
    ({"HEALTHBOARD_ACCOUNTS": "12"}, "HEALTHBOARD_ACCOUNTS"),
    ({"HEALTHBOARD_HOME": "/proc/nowhere"}, "Set HEALTHBOARD_HOME"),
    ({"REDIS_URL": "nonsense"}, "REDIS_URL does not answer"),
    ({"DATABASE_URL": "nonsense"}, "DATABASE_URL cannot be read"),
    ({"DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing"}, "Connection refused"),
]


@pytest.mark.parametrize("wrong, word", SETTINGS, ids=[next(iter(w)) + f" {n}" for n, (w, _) in enumerate(SETTINGS)])
def test_a_start_that_cannot_be_ends_with_one_line(tmp_path, wrong, word):
    stack = Stack(tmp_path / "home")
    done = subprocess.run(
        [sys.executable, "-m", "healthboard.supervisor"], cwd=ROOT, env={**stack.env, "PORT": str(spare_port()), **wrong},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 1 and line.startswith("healthboard cannot start: ") and word in line


@pytest.mark.parametrize(
    "args",
    [("check_invariants",), ("api-token", "operator"), ("node-token", "i-0123456789abcdef0"), ("policies", "export")],
)
def test_a_command_without_a_migrated_database_says_so(tmp_path, args):
    done = Stack(tmp_path).manage(*args, check=False)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "the database is not ready" in line and done.stdout == ""
    # run without an installation's settings, it must not read as that installation's outage
    assert f"HEALTHBOARD_MODE is sandbox, its home {tmp_path}" in line and "docs/install/README.md, Commands" in line


def test_a_command_in_a_wrong_environment_says_what_is_wrong(tmp_path):
    done = Stack(tmp_path, HEALTHBOARD_MODE="nonsense").manage("check_invariants", check=False)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "HEALTHBOARD_MODE=nonsense must be one of" in line


@pytest.mark.parametrize("args", [("sandbox_serve",), ("inject", "i-1", "XID_79"), ("sandbox", "aws", "off")])
def test_the_sandbox_does_not_exist_in_aws_mode(tmp_path, args):
    done = Stack(tmp_path, HEALTHBOARD_MODE="aws").manage(*args, check=False)
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "aws mode" in line


def test_make_says_which_python_it_needs(tmp_path):
    (tmp_path / "tests").mkdir()
    for name in ("Makefile", "tests/requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    old = tmp_path / "old"
    old.write_text('#!/bin/sh\ntest "$1" != -c\n')
    old.chmod(0o755)
    done = subprocess.run(["make", "run", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, timeout=20)
    assert done.returncode != 0 and done.stderr.splitlines()[0].startswith("healthboard needs Python 3.11")
    assert not (tmp_path / ".venv").exists()

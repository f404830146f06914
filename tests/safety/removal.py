"""Runs a guard's test in a process of its own, with the guard or without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.safety.guards import GUARDS, ROOT

LIMIT_S = 240


def broken(name: str, database: str, folder: Path, *, both: bool = True) -> list[str]:
    """What is wrong with the guard `name`: its test passes without it or, where `both`, fails with it.

    `database`: URL of a PostgreSQL server on which the test may make the database `test_NAME`, or finds it made.
    """
    found = []
    if both and (said := _failed(name, database, folder, without=False)):
        found.append(f"with the {name} its test fails: {said}")
    if not _failed(name, database, folder, without=True):
        found.append(f"without the {name} its test passes")
    return found


def _failed(name: str, database: str, folder: Path, *, without: bool) -> str:
    """The first failure of the named test; empty where it passes. Raises where it was not run at all."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DJANGO_", "HEALTHBOARD_", "PYTEST_", "SAFETY_"))}
    env |= {"HEALTHBOARD_TEST_DB": database, "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--reuse-db", "--no-header", "--tb=line"]
    if without:
        command += ["-p", "tests.safety.without"]
        env["SAFETY_WITHOUT"] = name
    done = subprocess.run(
        [*command, f"tests/{GUARDS[name].test}"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode == 0 and re.search(r"\d+ passed", done.stdout):
        return ""
    if done.returncode == 1 and re.search(r"\d+ failed", done.stdout):
        lines = done.stdout.splitlines()
        return next((line for line in lines if line.startswith("FAILED")), "it failed")
    raise RuntimeError(f"the test of the {name} was not run: {(done.stdout + done.stderr)[-2000:]}")

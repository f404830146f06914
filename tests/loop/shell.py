"""Python inside a stack's Django: one process for all that a test asks, since each start of one costs half a second."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path

LIMIT_S = 120
SERVER = """
import contextlib, io, json, os, sys, traceback
os.environ["DJANGO_SETTINGS_MODULE"] = "healthboard.settings"
import django
django.setup()
from django.db import close_old_connections
for line in sys.stdin:
    close_old_connections()
    said, error = io.StringIO(), ""
    with contextlib.redirect_stdout(said):
        try:
            exec(json.loads(line), {})
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps([said.getvalue(), error]), flush=True)
"""


class Shell:
    """Ends with `close`, or with the process that made it."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], cwd=root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def run(self, code: str) -> str:
        """What the code printed. Raises AssertionError with its traceback where it failed."""
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], LIMIT_S)[0]:
            raise AssertionError(f"no answer within {LIMIT_S} s: {code}")
        answer = self.process.stdout.readline()
        assert answer, f"the shell ended with {self.process.wait(10)}: {code}"
        said, error = json.loads(answer)
        assert not error, f"{code}\n{said}\n{error}"
        return said.strip()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

"""A real OpenID Connect provider (npm `oidc-provider`) for the tests, installed once into a cache from its lock file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.services import spare_port

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / "var" / "oidc-provider"
SECRET = "a secret of the tests alone"


def installed() -> Path:
    """The folder with the provider and its packages; installs them where they are not there yet."""
    lock = (HERE / "package-lock.json").read_bytes()
    home = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            if shutil.which("npm") is None:
                raise RuntimeError("npm not found: install Node.js (Debian: apt-get install nodejs npm)")
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, home / name)
            done = subprocess.run(
                ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=home, capture_output=True, text=True,
                timeout=300, check=False,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"npm ci failed: {done.stderr[-2000:]}")
            (home / "ready").touch()
    shutil.copy(HERE / "provider.mjs", home / "provider.mjs")
    return home


class Provider:
    """One provider as a process on a spare loopback port."""

    def __init__(self, redirect: str, folder: Path, *, lean: bool = False) -> None:
        self.issuer = f"http://127.0.0.1:{(port := spare_port())}"
        self.file = folder / "accounts.json"
        self.people: dict[str, dict[str, Any]] = {}
        self.tell()
        values = {"ISSUER": self.issuer, "PORT": str(port), "REDIRECT": redirect, "ACCOUNTS": str(self.file),
                  "SECRET": SECRET, "LEAN": "1" if lean else ""}  # fmt: skip
        home = installed()
        self.process = subprocess.Popen(
            ["node", "provider.mjs"], cwd=home, env={**os.environ, **values}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        said, ends = [], time.monotonic() + 30
        while time.monotonic() < ends and (line := self.process.stdout.readline()):
            said.append(line)
            if line.strip() == "listening":
                return
        self.stop()
        raise RuntimeError("the provider did not start: " + "".join(said))

    def knows(self, name: str, *groups: str, **claims: Any) -> None:
        self.people[name] = {"preferred_username": name, "groups": list(groups), **claims}
        self.tell()

    def tell(self) -> None:
        self.file.write_text(json.dumps(self.people))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.process.stdout.close()

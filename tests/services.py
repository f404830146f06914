"""Servers that tests start for themselves, on spare loopback ports, ended by process id."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parents[1]
#: a database of today's schema that is a template for others
MIGRATED = "migrated"
_ports = itertools.count()


def spare_port() -> int:
    """A port below the range from which outgoing connections take theirs, in a part of it that is this worker's own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 8
    start = os.getpid() % 400
    for _ in range(1000):
        port = 20_000 + worker * 1_500 + (start + next(_ports)) % 1_500
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no spare port below 32000")


def binary(name: str) -> str:
    found = [str(p) for p in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)]
    found += [shutil.which(name) or ""]
    for path in found:
        if path:
            return path
    raise RuntimeError(f"{name} not found: install PostgreSQL (Debian: apt-get install postgresql)")


def _as_user() -> dict:
    """PostgreSQL refuses root; as root its processes run as `nobody`."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def _give_to_user(folder: Path) -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        folder.parent.chmod(0o755)


def copy_cluster(stopped: Path, folder: Path) -> None:
    """The files of a cluster that was stopped, for another one to start on."""
    shutil.copytree(stopped, folder)
    _give_to_user(folder)


@dataclass
class Postgres:
    process: subprocess.Popen
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    @classmethod
    def start(cls, folder: Path, options: tuple[str, ...] = (), **popen: Any) -> Postgres:
        """`options`: more settings of the server, which win over those here; `popen`: more for its process.
        A folder that is there already holds a cluster that was stopped."""
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/tmp"}
        common = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "cwd": "/tmp", **_as_user()}
        if not folder.exists():
            folder.mkdir(parents=True)
            _give_to_user(folder)
            subprocess.run(
                [binary("initdb"), "-D", str(folder), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
                check=True,
                **common,
            )
        port = spare_port()
        settings = [
            f"-p{port}", "-h127.0.0.1", "-k", "", "-F", "-c", "full_page_writes=off", "-c", "jit=off",
            "-c", "max_connections=200", "-c", "log_min_messages=fatal",
        ]  # fmt: skip
        common["stderr"] = subprocess.DEVNULL
        process = subprocess.Popen(
            [binary("postgres"), "-D", str(folder), *settings, *options], start_new_session=True, **common, **popen
        )
        server = cls(process, port, folder)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return server
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("PostgreSQL did not start") from None
                time.sleep(0.05)
        raise RuntimeError("PostgreSQL did not listen within 10 s")

    def prepare(self, name: str) -> None:
        """Make a database and migrate it."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        url = self.url.rpartition("/")[0] + f"/{name}"
        command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "DATABASE_URL": url}, check=True, timeout=300)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()

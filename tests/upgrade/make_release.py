"""``python -m tests.upgrade.make_release TAG``: what an installation of a release leaves behind, as fixtures of the upgrade
tests, under ``tests/upgrade/releases/TAG/``. Run it once for each release, when its tag is made.

The release's own code runs from a worktree of its tag: `python -m healthboard.supervisor` with its own sandbox and
PostgreSQL. Three machines break, and as soon as both replacements are launched and the third machine was rebooted or drained, everything is
stopped as an upgrade stops it. What is written:

* ``database.sql.gz``   pg_dump as plain INSERTs, so that any server's version and client can restore it
* ``home.tar.gz``       the installation's home: AWS as the sandbox keeps it, secrets, audit heads
* ``healthboard_node.py.gz``   the reporter of that release, as it was
* ``release.json``      tag, time, the machines under repair, a node's token, the last migration of each app
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.services import Postgres, binary, spare_port

ROOT = Path(__file__).resolve().parents[2]
RELEASES = Path(__file__).resolve().parent / "releases"
POOLS, SPEED = "train=group:6,infer=group:6,solo=template:6", 30
#: pool -> what breaks in it: two replacements by different owners, a reboot
BROKEN = {"train": "XID_79", "solo": "XID_79", "infer": "XID_95"}
WAITS = "XID_119"  # of another machine: a question for a person
PASSWORD = "a-password-for-tests-only"
#: of the home, what an upgrade keeps
KEPT = ("sandbox/state.sqlite3", "audit-head.json", "audit-heads.log", "secrets")
#: who and where it was made is nobody's business: the release's processes are told these names
HOST, USER = "worker-1", "operator"
HEADS = "audit-heads.log"  # where the code lies, by a name that is the same everywhere: it stands in the database
_HOSTLESS = f"import socket\nsocket.gethostname = lambda: {HOST!r}\n"


class Running:
    """An installation of the release, from its own code."""

    def __init__(self, code: Path, home: Path, database: str) -> None:
        self.code, self.home, self.port = code, home, spare_port()
        (names := home / "names").mkdir(parents=True)
        (names / "sitecustomize.py").write_text(_HOSTLESS)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEALTHBOARD_", "DJANGO_", "REDIS_"))}
        self.env = clean | {
            "HEALTHBOARD_MODE": "sandbox", "HEALTHBOARD_HOME": str(home), "DATABASE_URL": database,
            "HEALTHBOARD_SANDBOX_PASSWORD": PASSWORD, "HEALTHBOARD_SANDBOX_SCRIPT": "off", "PORT": str(self.port),
            "HEALTHBOARD_SANDBOX_POOLS": POOLS, "HEALTHBOARD_SANDBOX_SPEED": str(SPEED), "HEALTHBOARD_NO_VENV": "1",
            "HEALTHBOARD_CONCURRENCY": "2", "HEALTHBOARD_AUDIT_HEADS": HEADS, "LOGNAME": USER, "PYTHONPATH": str(names),
        }  # fmt: skip
        self.output = (home / "supervisor.out").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "healthboard.supervisor"], cwd=code, env=self.env, stdout=self.output,
            stderr=self.output, start_new_session=True,
        )  # fmt: skip

    def manage(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *args], cwd=self.code, env=self.env, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"manage.py {' '.join(args)}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def get(self, path: str, token: str = "") -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                said = answer.read().decode()
        except OSError:
            return None
        return json.loads(said) if said.startswith("{") else said

    def fleet(self) -> dict[str, Any]:
        endpoint = (self.home / "run" / "sandbox.url").read_text().strip()
        with urllib.request.urlopen(f"{endpoint}/_sandbox/status", timeout=10) as answer:
            return json.load(answer)

    def until(self, condition: Callable[[], Any], limit: float, what: str) -> Any:
        end = time.monotonic() + limit
        while not (value := condition()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"in vain for {what}: {(self.home / 'supervisor.out').read_text()[-2000:]}")
            time.sleep(0.1)
        return value

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        self.output.close()


def main(tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="release-") as folder, _worktree(tag, Path(folder) / "code") as code:
        server = Postgres.start(Path(folder) / "postgres")
        running = Running(code, Path(folder) / "home", server.url)
        try:
            told = _in_the_middle(running)
            running.stop()
            said = running.manage("verify_audit") + "\n" + running.manage("check_invariants")
            _write(tag, running, server, told)
            print(f"{said}\n{json.dumps(told['repairs'], indent=1)}")
        finally:
            running.stop()
            server.stop()


def _in_the_middle(running: Running) -> dict[str, Any]:
    """Break machines and wait until their repairs are under way; what a test must know of them."""
    running.until(lambda: running.get("/readyz") is not None, 120, "the web server")
    token = running.manage("api-token", "operator")
    pools = running.until(lambda: _serving(running), 60, "the pools to serve")
    running.until(lambda: _heard(running, token), 120, "every node to report")
    broken = {pool: members[0] for pool, members in pools.items()}
    asked = pools["train"][1]
    node = pools["solo"][-1]
    spoken = running.manage("node-token", node)
    for pool, code in BROKEN.items():
        running.manage("inject", broken[pool], code)
    running.manage("inject", asked, WAITS)
    running.until(lambda: _begun(running, broken), 300, "the repairs to begin")
    running.until(
        lambda: any(asked in c["instances"] for c in (running.get("/api/v1/cases", token) or {}).get("items", [])),
        30, "a question",
    )  # fmt: skip
    calls = running.fleet()["calls"]
    if any(call["operation"] == "TerminateInstances" for call in calls):
        raise RuntimeError("too late: one of them is over already. Try again")
    return {
        "pools": POOLS, "speed": SPEED, "node": node, "node_token": spoken, "asked": asked,
        "broken": broken, "repairs": running.get("/api/v1/repairs", token)["items"],
    }  # fmt: skip


def _serving(running: Running) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {pool: [] for pool in BROKEN}
    for one in running.fleet()["instances"]:
        if one["pool"] in found and one["status"] == "ACTIVE" and one["agent_connected"]:
            found[one["pool"]].append(one["instance_id"])
    return found if all(len(members) == 6 for members in found.values()) else {}


def _heard(running: Running, token: str) -> bool:
    items = (running.get("/api/v1/instances?limit=500", token) or {}).get("items", [])
    heard = [row["instance_id"] for row in items if row["node_seen_at"]]
    return len(heard) >= 18


def _begun(running: Running, broken: dict[str, str]) -> bool:
    done = {(c["operation"], c["target"]) for c in running.fleet()["calls"] if c["outcome"] == "ok"}
    operations = {operation for operation, _ in done}
    return (
        ("EnterStandby", broken["train"]) in done and "RunInstances" in operations
        and ("UpdateContainerInstancesState", broken["infer"]) in done
    )  # fmt: skip


def _write(tag: str, running: Running, server: Postgres, told: dict[str, Any]) -> None:
    target = RELEASES / tag
    target.mkdir(parents=True, exist_ok=True)
    dumped = subprocess.run(
        [binary("pg_dump"), "--no-owner", "--no-privileges", "--rows-per-insert=200", server.url],
        check=True, capture_output=True,
    ).stdout  # fmt: skip
    # of what a newer client adds, the lines that an older server or client does not know
    dumped = re.sub(rb"(?m)^(\\(un)?restrict .*|SET transaction_timeout.*)\n", b"", dumped)
    shutil.copy(running.code / HEADS, running.home / HEADS)
    head = json.loads((running.home / "audit-head.json").read_text())  # the last thing that was written
    told |= {"tag": tag, "commit": _git("rev-list", "-n1", tag), "at": head["at"]}
    told["migrations"] = _migrations(server.url)
    _nameless(dumped + json.dumps(told).encode() + (running.home / KEPT[0]).read_bytes())
    (target / "database.sql.gz").write_bytes(_gzip(dumped))
    (target / "home.tar.gz").write_bytes(_home(running.home))
    (target / "healthboard_node.py.gz").write_bytes(
        _gzip((running.code / "workers" / "node" / "healthboard_node.py").read_bytes())
    )
    (target / "release.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def _migrations(url: str) -> dict[str, str]:
    """The last migration of each app of ours: those that have tables of their own with us, not Django's or others'."""
    ours = tuple(path.parent.parent.name for path in ROOT.glob("healthboard/*/migrations/__init__.py"))
    with psycopg.connect(url) as link:
        rows = link.execute(
            "SELECT app, max(name) FROM django_migrations WHERE app = ANY(%s) GROUP BY app", [list(ours)]
        )
        return dict(rows.fetchall())


def _home(home: Path) -> bytes:
    """The kept part of the home; SQLite's log of writes is brought into the file first."""
    with sqlite3.connect(home / KEPT[0]) as state:
        state.execute("pragma wal_checkpoint(truncate)")
        state.execute("vacuum")
    state.close()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in KEPT:
            tar.add(home / name, name, filter=_anonymous)
    return _gzip(packed.getvalue())


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def _nameless(data: bytes) -> None:
    """Raises where something of the machine that this runs on is in it."""
    here = {socket.gethostname(), os.environ.get("USER", ""), str(ROOT), str(Path.home()), tempfile.gettempdir()}
    for name in here - {USER, HOST}:
        found = re.search(rb"(?<![\w-])" + re.escape(name.encode()) + rb"(?![\w-])", data) if len(name) > 1 else None
        if found:
            around = data[max(found.start() - 150, 0) : found.end() + 150].decode(errors="replace")
            raise RuntimeError(f"{name!r} of this machine is in what would be written: {around}")


@contextmanager
def _worktree(tag: str, folder: Path) -> Iterator[Path]:
    _git("worktree", "add", "--detach", str(folder), tag)
    try:
        yield folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1])

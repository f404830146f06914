"""`make run`: prepares everything, starts every process, keeps them alive, and stops them all.

Standard library plus our own config; Django runs only in the children. A dead child is back within five seconds;
all children end with this process, however it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from healthboard import broker, config, prepare, processes, valkey
from healthboard.config import ROOT, BadSetting

STOP_S = 12.0  # from SIGTERM to SIGKILL
FIRST_DELAY, LAST_DELAY = 0.3, 4.0
_PR_SET_PDEATHSIG = 1
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback goes through nobody's proxy
_libc = ctypes.CDLL(None, use_errno=True)


class CannotStart(Exception):
    """One line that says why, and what to do."""


@dataclass
class Child:
    name: str
    command: list[str]
    part: str = ""  # which process of an installation it is; empty: none of them
    process: subprocess.Popen | None = None
    delay: float = FIRST_DELAY
    started: float = 0.0
    again_at: float = 0.0

    def start(self, env: dict[str, str]) -> None:
        log = config.home() / "log" / f"{self.name}.log"
        _rotate(log)
        if self.part:
            env = processes.environment(self.part, env)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip
        self.started = time.monotonic()
        told = config.run_dir() / f"{self.name}.pid"
        told.with_suffix(".pid.new").write_text(f"{self.process.pid}\n")
        told.with_suffix(".pid.new").replace(told)  # whoever reads it meanwhile finds a whole number


def _die_with_parent() -> None:
    with contextlib.suppress(Exception):
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _rotate(log: Path, limit: int = 20_000_000) -> None:
    if log.exists() and log.stat().st_size > limit:
        log.replace(log.with_suffix(".log.1"))


class Supervisor:
    def __init__(self) -> None:
        self.mode = config.mode()
        self.env = dict(os.environ)
        self.children: list[Child] = []
        self.stopping = False

    # --- start ---

    def prepare(self) -> None:
        home, run = config.home(), config.run_dir()
        for folder in (home, run, home / "log"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CannotStart(f"{folder} cannot be made: {error.strerror}. Set HEALTHBOARD_HOME.") from error
        self._alone(run)
        config.speed()  # a bad value is told here, not by each child
        config.local_gpus()
        if self.mode == "aws":
            _check_aws()
        else:
            _check_sandbox()
        host, _, port = config.bind().rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host or "0.0.0.0", int(port)))
            except OSError as error:
                raise CannotStart(
                    f"Port {port} cannot be used ({error.strerror}): stop what listens there, or set PORT."
                ) from error
        key = run / "enrol.key"
        key.touch(mode=0o600)
        key.write_text(secrets.token_urlsafe(32))
        (run / "sandbox.url").unlink(missing_ok=True)
        self.env |= {
            "DJANGO_SETTINGS_MODULE": "healthboard.settings",
            "HEALTHBOARD_MODE": self.mode,
            "HEALTHBOARD_WEB_URL": f"http://127.0.0.1:{port}",
            "PYTHONUNBUFFERED": "1",
        }

    def _alone(self, run: Path) -> None:
        self._lock = (run / "supervisor.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotStart(
                f"healthboard runs already from {config.home()}: stop it, or set HEALTHBOARD_HOME."
            ) from None

    def broker(self) -> None:
        if url := config.read("REDIS_URL"):
            if why := broker.trouble():
                raise CannotStart(why)
            self.env["REDIS_URL"] = url
            return
        try:
            command, url = valkey.prepare(config.run_dir())
            child = self._add("valkey", command)
        except (valkey.NoServer, OSError) as error:
            raise CannotStart(f"Valkey cannot be started: {error}") from error
        for _ in range(100):
            if valkey.answers(url):
                self.env["REDIS_URL"] = url
                return
            if child.process.poll() is not None:
                break
            time.sleep(0.1)
        raise CannotStart(f"Valkey does not answer: see {config.home() / 'log' / 'valkey.log'}")

    def database(self) -> None:
        try:
            prepare.database(self.env, lambda line: None)
        except prepare.Failed as failed:
            raise CannotStart(str(failed)) from None

    def processes(self) -> None:
        from healthboard.celery import QUEUES

        if self.mode == "sandbox":
            self._add("sandbox", [sys.executable, "manage.py", "sandbox_serve"])
        self._add("worker", processes.worker("all", QUEUES), "all")
        if config.local_gpus():  # a process of its own: a driver that hangs holds nothing else up
            self._add("local-gpus", processes.worker("local", (config.local_queue(),), solo=True), "reader")
        for name in ("beat", "web"):
            self._add(name, processes.command(name), name)

    def _add(self, name: str, command: list[str], part: str = "") -> Child:
        child = Child(name, command, part)
        self.children.append(child)
        child.start(self.env)
        return child

    # --- run ---

    def wait_ready(self, limit: float = 60) -> bool:
        url = f"http://{config.bind()}/readyz"
        end = time.monotonic() + limit
        while time.monotonic() < end and not self.stopping:
            self.tend()
            try:
                with _direct.open(url, timeout=2) as answer:
                    return answer.status == 200
            except (OSError, urllib.error.URLError):
                time.sleep(0.2)
        return False

    def tend(self) -> None:
        """Restart what has died, with a growing pause that stays under five seconds."""
        now = time.monotonic()
        for child in self.children:
            if child.process.poll() is None:
                if now - child.started > 30:
                    child.delay = FIRST_DELAY
                continue
            if not child.again_at:
                print(f"{child.name} ended ({child.process.returncode}); starting it again", flush=True)
                _signal(child, signal.SIGKILL, group=True)  # what it started holds its port, or its queue, no longer
                child.again_at = now + child.delay
                child.delay = min(child.delay * 2, LAST_DELAY)
            elif now >= child.again_at:
                child.again_at = 0.0
                child.start(self.env)

    def run(self) -> None:
        while not self.stopping:
            self.tend()
            time.sleep(0.2)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def end(self) -> None:
        """SIGTERM to every child, what feeds before what carries; SIGKILL to those that stay."""
        for child in reversed(self.children):
            _signal(child, signal.SIGTERM)
        end = time.monotonic() + STOP_S
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(end - time.monotonic(), 0.1))
        for child in self.children:
            _signal(child, signal.SIGKILL, group=True)
            (config.run_dir() / f"{child.name}.pid").unlink(missing_ok=True)


def _signal(child: Child, number: int, *, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(child.process.pid, number)
        elif child.process.poll() is None:
            child.process.send_signal(number)


def _check_sandbox() -> None:
    from healthboard.sandbox import config as sandbox

    try:
        sandbox.from_env()
    except sandbox.BadSetting as error:
        raise CannotStart(str(error)) from error


def _check_aws() -> None:
    if not config.read("DATABASE_URL") or not config.read("REDIS_URL"):
        raise CannotStart("HEALTHBOARD_MODE=aws needs DATABASE_URL (PostgreSQL) and REDIS_URL.")
    if not config.listed("HEALTHBOARD_ACCOUNTS") or not config.listed("HEALTHBOARD_REGIONS"):
        raise CannotStart("HEALTHBOARD_MODE=aws needs HEALTHBOARD_ACCOUNTS and HEALTHBOARD_REGIONS.")
    import botocore.session

    if botocore.session.get_session().get_credentials() is None:
        raise CannotStart("No AWS credentials: give this process a role, a profile or AWS_* variables.")


def main() -> int:
    supervisor = None
    try:
        supervisor = Supervisor()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, supervisor.stop)
        supervisor.prepare()
        supervisor.broker()
        supervisor.database()
        supervisor.processes()
        if supervisor.wait_ready():
            _welcome(supervisor.mode)
        elif not supervisor.stopping:
            raise CannotStart(f"The web server is not ready after 60 s: see {config.home() / 'log'}")
        supervisor.run()
    except (CannotStart, BadSetting) as error:
        print(f"healthboard cannot start: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        if supervisor is not None:
            supervisor.end()
    return 0


def _welcome(mode: str) -> None:
    print(f"\nhealthboard is ready: http://{config.bind()}", flush=True)
    if mode == "sandbox":
        given = config.read("HEALTHBOARD_SANDBOX_PASSWORD")
        print(
            "  log in as viewer, operator, approver or admin, password "
            + ("as given in HEALTHBOARD_SANDBOX_PASSWORD" if given else config.secret("sandbox-password")),
            flush=True,
        )
        print("  a simulated fleet is running; faults appear by themselves. Ctrl-C stops everything.\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())

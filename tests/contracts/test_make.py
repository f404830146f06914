"""`make run` by its own hand: what it prints, the log-in, children that come back, and its two ways to end."""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from healthboard.supervisor import Child, Supervisor
from tests.services import spare_port

pytestmark = pytest.mark.loop
ROOT = Path(__file__).resolve().parents[2]
STAMP = ".venv/.installed"
#: an environment that was made otherwise than by `make install` is taken as it is
MAKE = ("make",) if (ROOT / STAMP).exists() else ("make", "-o", STAMP)
CHILDREN = ("web", "worker", "beat", "sandbox", "valkey")


class Make:
    """One `make run` in a process group of its own, as a terminal starts it."""

    def __init__(self, home: Path, port: int) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEALTHBOARD_", "DJANGO_"))}
        for name in ("DATABASE_URL", "REDIS_URL", "MAKEFLAGS", "MAKELEVEL"):
            clean.pop(name, None)
        # a proxy that nobody answers at: loopback must not go through it
        proxy = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        self.home, self.port, self.env = (
            home,
            port,
            {**clean, **proxy, "HEALTHBOARD_HOME": str(home), "PORT": str(port)},
        )
        home.mkdir(exist_ok=True)
        self.out = home / "make.out"
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                [*MAKE, "run"], cwd=ROOT, env=self.env, stdout=out, stderr=out, start_new_session=True
            )

    def ready(self, limit: float = 90) -> str:
        end = time.monotonic() + limit
        while "Ctrl-C" not in self.out.read_text():
            assert self.process.poll() is None and time.monotonic() < end, self.out.read_text()
            time.sleep(0.2)
        return self.out.read_text()

    def pids(self) -> dict[str, int]:
        return {name: int((self.home / "run" / f"{name}.pid").read_text()) for name in CHILDREN}

    def ended(self, pids: dict[str, int]) -> None:
        self.process.wait(30)
        left = {name: pid for name, pid in pids.items() if Path(f"/proc/{pid}").exists()}
        assert not left and not list((self.home / "run").glob("*.pid")), left

    def status(self) -> dict:
        done = subprocess.run(
            ["python3", "manage.py", "sandbox", "status", "--json"], cwd=ROOT, env=self.env, capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def start(tmp_path):
    made, port = [], spare_port()

    def begin() -> Make:
        made.append(Make(tmp_path / "home", port))
        return made[-1]

    yield begin
    for one in made:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(40)


def log_in(port: int, user: str, password: str) -> str:
    """The page after the log-in form was sent as a browser sends it."""
    jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
    browser = urllib.request.build_opener(jar, urllib.request.ProxyHandler({}))
    url = f"http://127.0.0.1:{port}/accounts/login/"
    form = browser.open(url, timeout=20).read().decode()
    csrf = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form).group(1)
    sent = {"username": user, "password": password, "csrfmiddlewaretoken": csrf}
    return browser.open(url, urllib.parse.urlencode(sent).encode(), timeout=20).url


def test_make_run_serves_prints_its_log_ins_mends_its_children_and_ends_on_both_signals(start):
    first = start()
    said = first.ready()
    assert f"http://127.0.0.1:{first.port}" in said
    assert all(name in said for name in ("viewer", "operator", "approver", "admin"))
    password = re.search(r"password (\S+)", said).group(1)
    assert log_in(first.port, "operator", password) == f"http://127.0.0.1:{first.port}/"
    assert log_in(first.port, "operator", "wrong").endswith("/accounts/login/")
    fleet = {i["instance_id"] for i in first.status()["instances"]}
    assert len(fleet) >= 40

    before = first.pids()
    for name in CHILDREN:
        os.kill(before[name], signal.SIGKILL)
    end = time.monotonic() + 5
    while any(first.pids()[name] == before[name] for name in CHILDREN):
        assert time.monotonic() < end, (before, first.pids())
        time.sleep(0.1)
    pids = first.pids()
    first.process.send_signal(signal.SIGTERM)  # to make alone
    first.ended(pids)

    second = start()
    said = second.ready()
    assert password in said
    assert fleet <= {i["instance_id"] for i in second.status()["instances"]}
    pids = second.pids()
    os.killpg(second.process.pid, signal.SIGINT)  # Ctrl-C: the terminal tells its whole foreground group
    second.ended(pids)
    assert "Traceback" not in second.out.read_text()


def test_what_a_dead_child_had_started_ends_before_it_is_started_again(tmp_path, monkeypatch):
    """The workers of a web server that was killed would go on holding its port, also after the end of all."""
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    (tmp_path / "log").mkdir()
    (tmp_path / "run").mkdir()
    said = tmp_path / "log" / "web.log"
    child = Child("web", ["sh", "-c", "trap '' TERM; sleep 300 & echo $!; wait"])
    supervisor = Supervisor()
    supervisor.children = [child]
    child.start(dict(os.environ))
    try:
        orphan = int(waited_for(lambda: said.read_text().strip()))
        child.process.kill()
        child.process.wait(10)
        assert not ended(orphan), "it outlives its parent"
        supervisor.tend()
        assert waited_for(lambda: ended(orphan))
    finally:
        supervisor.end()


def waited_for(answer, limit: float = 10):
    end = time.monotonic() + limit
    while not (told := answer()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return told


def ended(pid: int) -> bool:
    """Gone, or waiting only for whoever adopted it to take note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_pid_file_is_never_seen_half_written(tmp_path, monkeypatch):
    """Whoever opens it while a child starts anew reads one number or the other."""
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    (tmp_path / "log").mkdir()
    (tmp_path / "run").mkdir()
    child = Child("web", ["true"])
    path, seen = tmp_path / "run" / "web.pid", []
    child.start(dict(os.environ))
    seen.append(child.process)
    with path.open() as opened_before:
        child.start(dict(os.environ))
        seen.append(child.process)
        assert opened_before.read() == f"{seen[0].pid}\n"
    assert path.read_text() == f"{seen[1].pid}\n"
    assert [p.name for p in path.parent.iterdir()] == ["web.pid"]
    for process in seen:
        process.wait(10)

"""The whole product as processes, as `make run` starts it: supervisor, Valkey, sandbox, worker, beat, web."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from healthboard.sandbox import client
from tests.loop.shell import Shell
from tests.services import spare_port

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a-password-for-tests-only"


class Stack:
    def __init__(self, home: Path, **env: str) -> None:
        self.home, self.port = home, spare_port()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEALTHBOARD_", "DJANGO_"))}
        clean.pop("REDIS_URL", None)
        clean.pop("DATABASE_URL", None)
        self.env = clean | {
            "HEALTHBOARD_MODE": "sandbox",
            "HEALTHBOARD_HOME": str(home),
            "HEALTHBOARD_SANDBOX_PASSWORD": PASSWORD,
            "HEALTHBOARD_SANDBOX_SCRIPT": "off",
            "PORT": str(self.port),
            **env,
        }
        self.process: subprocess.Popen | None = None
        self._tokens: dict[str, str] = {}
        self._shell: Shell | None = None

    # --- process ---

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, limit: float = 120) -> Stack:
        self.home.mkdir(parents=True, exist_ok=True)
        self.output = (self.home / "supervisor.out").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "healthboard.supervisor"], cwd=ROOT, env=self.env, stdout=self.output,
            stderr=self.output, start_new_session=True,
        )  # fmt: skip
        self.until(lambda: self.get("/readyz", token="")[0] == 200, limit, "the web server to be ready")
        return self

    def stop(self) -> None:
        if self._shell:
            self._shell.close()
            self._shell = None
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(40)
        self.output.close()

    def pid(self, name: str) -> int:
        return int((self.home / "run" / f"{name}.pid").read_text())

    def kill(self, name: str) -> int:
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def said(self) -> str:
        return (self.home / "supervisor.out").read_text()

    def logs(self, name: str = "worker") -> str:
        return (self.home / "log" / f"{name}.log").read_text(errors="replace")

    # --- commands ---

    def manage(self, *args: str, check: bool = True, **kw: Any) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [sys.executable, "manage.py", *args],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            **kw,
        )
        if check and done.returncode:
            raise AssertionError(f"manage.py {' '.join(args)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def inject(self, instances: str | list[str], code: str, *more: str) -> None:
        """What `manage.py inject` does, without starting a process for each; `more`: its options."""
        gpu = int(more[more.index("--gpu") + 1]) if "--gpu" in more else None
        names = [instances] if isinstance(instances, str) else instances
        body = {"instances": names, "code": code, "gpu": gpu, "clear": "--clear" in more}
        assert sorted(client.call("inject", body, self.home)["instances"]) == sorted(names)

    def fleet(self) -> dict[str, Any]:
        """What `sandbox status --json` prints, without starting a process for each look."""
        return self._sandbox("status")

    def standing(self) -> dict[str, Any]:
        """The same without the calls: for what is asked again and again."""
        return self._sandbox("fleet")

    def _sandbox(self, path: str) -> dict[str, Any]:
        endpoint = (self.home / "run" / "sandbox.url").read_text().strip()
        with urllib.request.urlopen(f"{endpoint}/_sandbox/{path}", timeout=30) as answer:
            return json.load(answer)

    def members(self, pool: str) -> list[str]:
        return [
            i["instance_id"] for i in self.standing()["instances"]
            if i["pool"] == pool and i["state"] == "running" and i["status"] == "ACTIVE" and i["agent_connected"]
        ]  # fmt: skip

    def shell(self, code: str) -> str:
        """Run Python inside Django and return what it printed."""
        self._shell = self._shell or Shell(ROOT, self.env)
        return self._shell.run(code)

    # --- HTTP ---

    def token(self, user: str) -> str:
        if user not in self._tokens:
            command = f"from django.core.management import call_command; call_command('api-token', {user!r})"
            self._tokens[user] = self.shell(command)
        return self._tokens[user]

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, user: str = "operator",
        raw: bytes | None = None, headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:  # fmt: skip
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        bearer = self.token(user) if token is None else token
        if bearer:
            request.add_header("Authorization", f"Bearer {bearer}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())
        except OSError as error:
            return 0, str(error)

    def get(self, path: str, **kw: Any) -> tuple[int, Any]:
        return self.request("GET", path, **kw)

    def cases(self, instance: str = "", state: str = "") -> list[dict[str, Any]]:
        wanted = {k: v for k, v in {"instance": instance, "state": state, "limit": "200"}.items() if v}
        status, answer = self.get(f"/api/v1/cases?{urllib.parse.urlencode(wanted)}")
        assert status == 200, answer
        return answer["items"]

    def repairs(self, instance: str = "") -> list[dict[str, Any]]:
        status, answer = self.get("/api/v1/repairs?limit=200")
        assert status == 200, answer
        return [r for r in answer["items"] if not instance or instance in r["instances"]]

    def decide(self, case: dict[str, Any], decision: str, *, user: str = "operator", **more: Any) -> tuple[int, Any]:
        body = {
            "decision": decision, "plan_version": case["plan_version"], "evidence_hash": case["evidence_hash"], **more
        }  # fmt: skip
        return self.request("POST", f"/api/v1/cases/{case['id']}/decisions", body, user=user)

    # --- waiting ---

    def until(self, condition: Callable[[], Any], limit: float, what: str, *, every: float = 0.5) -> Any:
        """Poll until `condition()` is true; returns its value. A condition that starts a process is asked less often."""
        end = time.monotonic() + limit
        while True:
            value = condition()
            if value:
                return value
            if self.process.poll() is not None:
                raise AssertionError(f"the supervisor ended: {self.said()[-2000:]}")
            if time.monotonic() > end:
                raise AssertionError(f"waited {limit:.0f} s in vain for {what}\n{self.open_work()}")
            time.sleep(every)

    def open_work(self) -> str:
        """What stands open and why, for a failed wait."""
        return self.shell(
            "from healthboard.repairs.models import *;from healthboard.cases.models import *;"
            "[print('repair', r.pk, r.instance, r.action, r.state, r.step, r.why_waiting) for r in"
            " Repair.objects.filter(closed_at=None)];"
            "[print('case', c.pk, c.instance, c.state, c.verdict, c.codes, c.why_waiting) for c in"
            " Case.objects.filter(closed_at=None)]"
        )

    def case_of(self, instance: str, limit: float = 60) -> dict[str, Any]:
        return self.until(lambda: next(iter(self.cases(instance)), None), limit, f"a case of {instance}")

    def closed(self, instance: str, limit: float = 180) -> dict[str, Any]:
        def ended():
            found = [c for c in self.cases(instance, "CLOSED") if c["verdict"] != "CORRELATED"]
            return found[0] if found else None

        return self.until(ended, limit, f"the case of {instance} to close", every=1)

    def repaired(self, instance: str, limit: float = 180) -> None:
        """Wait until its case is closed; unless by a repair, fail with its story."""
        case = self.closed(instance, limit)
        if case["resolution"] != "REPAIRED":
            story = self.shell(
                "from healthboard.audit.models import *;"
                f"[print(r.at.time(), r.verb, r.summary[:160]) for r in AuditRow.objects.filter(instance='{instance}').order_by('pk')]"
            )
            raise AssertionError(f"{instance}: {case['resolution']}, not REPAIRED\n{story}")


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def changing(fleet: dict[str, Any], *operations: str, target: str = "") -> list[dict[str, Any]]:
    return [
        c for c in fleet["calls"]
        if c["operation"] in operations and c["outcome"] == "ok" and (not target or c["target"] == target)
    ]  # fmt: skip

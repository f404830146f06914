"""The newcomer's machine of the install test, AWS as the sandbox plays it, and the servers that somebody else runs.

What is not as in a real installation is said here and nowhere else: the names that are filled in (`names`), and the settings of the
test (`settings`): the SDK's own AWS_ENDPOINT_URL with keys of the sandbox, pip without an index, and the pace (tests/install/pace).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from healthboard.sandbox import client
from healthboard.sandbox.config import Config, parse_pools
from healthboard.sandbox.nodes.http import Poster
from healthboard.sandbox.server import Engine
from tests.install import machine
from tests.install.browser import PROXY, Browser
from tests.install.guide import Reader
from tests.loop.stack import changing
from tests.rights.tls import Broker
from tests.services import spare_port

ACCOUNT, REGION, PACE = "111122223333", "us-east-1", 15
#: of EC2 and ECS, what changes an instance
CHANGES = (
    "UpdateContainerInstancesState", "RunInstances", "TerminateInstances", "RebootInstances", "DeregisterContainerInstance",
)  # fmt: skip


class Place:
    """The newcomer's machine, AWS as the sandbox plays it, and the servers that somebody else runs."""

    def __init__(self, folder: Path, tokens: dict[str, str]) -> None:
        self.tokens = tokens
        self.folder, self.port, self.broker_port = folder, spare_port(), spare_port()
        folder.chmod(0o755)
        self.authority = trustme.CA()
        self.database = machine.Database(folder / "postgres", self.authority)
        self.broker: Broker | None = None
        aws = Config(
            home=folder / "aws", speed=2 * PACE, script=False, pools=parse_pools("solo=template:4"), accounts=(ACCOUNT,),
            regions=(REGION,), web_url=f"http://127.0.0.1:{self.port}",
        )  # fmt: skip
        self.engine = Engine(aws)
        self.engine.start()
        self.machines = sorted(i.id for i in self._world().instances.values() if i.pool == "solo")
        home = folder / "home"
        for path in (home, self.opt.parent, self.etc, self.var):
            path.mkdir(parents=True, mode=0o755)
            self.own(path)
        machine.release(home / "healthboard.tar.gz")
        self.reader = Reader(home, self.names, self.settings)
        self.browser = Browser(self.port)

    opt = property(lambda self: self.folder / "opt" / "healthboard")
    etc = property(lambda self: self.folder / "etc" / "healthboard")
    var = property(lambda self: self.folder / "var" / "healthboard")

    @property
    def names(self) -> dict[str, str]:
        """What is filled in: every one of them is named in the document as such, or is a place on the machine."""
        return {
            "/opt/healthboard": str(self.opt), "/etc/healthboard": str(self.etc), "/var/lib/healthboard": str(self.var),
            "db.internal": self.database.at, "redis.internal:6379": f"localhost:{self.broker_port}",
            "127.0.0.1:8000": f"127.0.0.1:{self.port}", "123456789012": ACCOUNT, "eu-west-1": REGION,
            "i-0123456789abcdef0": self.machines[0],
        }  # fmt: skip

    @property
    def settings(self) -> dict[str, str]:
        """The environment of the newcomer's shell."""
        packages = machine.packages(self.folder / "packages")
        python = machine.python(self.folder)
        pace = shutil.copytree(Path(__file__).parent / "pace", self.folder / "pace")
        return {
            "PATH": f"{python}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(python.parent / "lib"), "LANG": "C.UTF-8",
            "HOME": str(self.folder / "home"),
            "PYTHONPATH": f"{pace}:{packages}", "PACE": str(PACE), "PIP_NO_INDEX": "1", "PORT": str(self.port),
            "AWS_ENDPOINT_URL": self.engine.url, "AWS_ACCESS_KEY_ID": f"ASANDBOX{ACCOUNT}",
            "AWS_SECRET_ACCESS_KEY": "made-up", "AWS_EC2_METADATA_DISABLED": "true", "HEALTHBOARD_CONCURRENCY": "2",
        }  # fmt: skip

    def _world(self):
        return self.engine.sandbox.world(ACCOUNT, REGION)

    # --- what somebody else does

    def serve_messages(self) -> None:
        """The broker's operator takes the file of users over."""
        users = (self.etc / "secrets" / "users.acl").read_text()
        self.broker = Broker(
            self.folder / "broker", users=users, authority=self.authority, port=self.broker_port
        )  # fmt: skip

    def inject(self, instance: str, code: str) -> None:
        body = {"instances": [instance], "code": code, "gpu": 3, "clear": False}
        assert client.call("inject", body, self.folder / "aws")["instances"] == [instance]

    def give_tokens(self, instances: list[str]) -> None:
        """As `node-token` gives them, several in one process."""
        code = (
            "from django.core.management import call_command as c; "
            f"[c('node-token', i) for i in {instances}]"
        )  # fmt: skip
        said = self.reader.type(f'.venv/bin/python manage.py shell --no-imports -c "{code}"').split()
        assert len(said) == len(instances), said
        self.tokens.update(zip(instances, said, strict=True))

    # --- looking

    def calls(self, target: str) -> list[str]:
        """Changing calls of the installation on an instance, in order."""
        return [call["operation"] for call in changing(self.status(), *CHANGES, target=target)]

    def status(self) -> dict:
        return client.call("status", None, self.folder / "aws")

    def token(self) -> str:
        return (self.etc / "secrets" / "first-look").read_text().split()[-1]

    def repair(self, instance: str) -> dict | None:
        return next(iter(self.browser.api(f"repairs?instance={instance}", self.token())), None)

    def case(self, instance: str) -> dict | None:
        return next(iter(self.browser.api(f"cases?instance={instance}", self.token())), None)

    def until(self, condition: Callable[[], Any], limit_s: float, what: str) -> Any:
        end = time.monotonic() + limit_s
        while not (value := condition()):
            assert time.monotonic() < end, f"in vain for {what}\n{self.logs()}"
            time.sleep(0.5)
        return value

    def logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(self.var.glob("*.log")))

    def sign_in(self) -> Browser:
        """The first admin, just now: what only a fresh log-in may do goes."""
        self.browser = Browser(self.port)
        password = (self.etc / "secrets" / "first-password").read_text().strip()
        self.browser.send("/accounts/login/", "/accounts/login/", username="admin", password=password)
        return self.browser

    def own(self, path: Path) -> None:
        """The file or folder belongs to the newcomer."""
        if os.geteuid() == 0:
            shutil.chown(path, "nobody", "nogroup")

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.database.server.stop)
            stack.callback(self.engine.stop)
            if self.broker:
                stack.callback(self.broker.stop)
            stack.callback(self.reader.close)

    def heard(self) -> set[str]:
        """Instances whose reporter spoke."""
        rows = self.browser.api("instances?pool=solo", self.token())
        return {row["instance_id"] for row in rows if row["node_seen_at"]}

    def fleet(self) -> set[str]:
        return {row["instance_id"] for row in self.browser.api("instances?limit=500", self.token())}

    def users(self) -> set[str]:
        """Who is connected to the broker."""
        return {row["user"] for row in self.broker.admin.client_list()}

    def watched(self) -> bool:
        """Whether every source has told two full rounds."""
        rows = self.database.ask("SELECT good_rounds >= 2 FROM fleet_source WHERE name <> 'node'")
        return bool(rows) and all(good for (good,) in rows)

    def environments(self) -> dict[str, set[str]]:
        """Name of a process -> the variables that it was started with."""
        found: dict[str, set[str]] = {}
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                rows = dict(part.split("=", 1) for part in path.read_bytes().decode().split("\0") if "=" in part)
                if rows.get("HEALTHBOARD_HOME") == str(self.var) and rows.get("HEALTHBOARD_PROCESS"):
                    found.setdefault(rows["HEALTHBOARD_PROCESS"], set()).update(rows)
        return found


@contextlib.contextmanager
def opened() -> Iterator[Place]:
    folder = Path(
        tempfile.mkdtemp(prefix="healthboard-install-")
    )  # not pytest's, which other users may not pass through
    tokens: dict[str, str] = {}  # that `node-token` printed; a node without one is not known yet
    here: list[Place] = []
    patch = pytest.MonkeyPatch()
    post = Poster._post
    patch.setattr(Poster, "enrol", lambda self, i, *_: (200, {"token": tokens[i]}) if i in tokens else (404, {}))
    patch.setattr(Poster, "_post", lambda self, path, headers, value: post(self, path, {**headers, **PROXY}, value))
    try:
        here.append(Place(folder, tokens))
        yield here[0]
    finally:
        if here:
            here[0].close()
        patch.undo()
        shutil.rmtree(folder, ignore_errors=True)

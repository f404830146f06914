"""One machine as compose.yaml has it, without containers: the secrets by the shipped script, PostgreSQL and Valkey behind TLS
with these secrets, and each process in a jail with the files that the Containerfile copies and the settings of its service."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import redis

from healthboard import valkey
from tests.install.jail import Jail
from tests.install.shipped import FOLDER, ROOT, compose, env_file, image
from tests.rights.tls import Terminator
from tests.services import Postgres, spare_port

USER = int(image().user.partition(":")[0])
HOME = image().volumes[0]


class _Certificate:
    def __init__(self, secrets: Path, name: str) -> None:
        self.files = secrets / f"{name}.pem", secrets / f"{name}.key"

    def configure_cert(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(*self.files)


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder, self.secrets = folder, folder / "secrets"
        self.tree = folder / "image"
        self.web, self.plain = spare_port(), spare_port()
        self.processes: list[subprocess.Popen] = []
        self.closing = contextlib.ExitStack()
        self.closing.callback(shutil.rmtree, folder, ignore_errors=True)

    def open(self) -> None:
        folder = self.folder
        self._unpack()
        (folder / "hosts").write_text("127.0.0.1 localhost db valkey\n")
        name = re.search(r"useradd .* (\w+)$", (FOLDER / "Containerfile").read_text(), re.M)[1]
        (folder / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{name}:x:{USER}:{USER}::{HOME}:/usr/sbin/nologin\n")
        (folder / "group").write_text(f"root:x:0:\n{name}:x:{USER}:\n")
        self._secrets()
        self._database()
        self._broker()

    def _unpack(self) -> None:
        """What the image holds of the repository: nothing that is not copied, no compiled files, all of it root's."""
        (self.tree / "opt/healthboard").mkdir(parents=True)
        for source, at in image().copied.items():
            target = self.tree / at.lstrip("/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, target)
        (self.tree / "opt/healthboard/.venv").mkdir()

    def _secrets(self) -> None:
        run = ["sh", str(FOLDER / "secrets.sh"), str(self.secrets)]
        subprocess.run(run, check=True, capture_output=True)
        self.tls = Terminator(self.plain, _Certificate(self.secrets, "valkey"))
        self.closing.callback(self.tls.close)
        at = f"rediss://valkey:{self.tls.port}/0"
        self._jail("acl", {"/run/s": (self.secrets, "rw")})
        made = self.ended("acl", ["python", "manage.py", "broker_acl", "/run/s", "--at", at], image().env, user=0)
        assert made[0] == 0, made[1]
        for name in ("reader.aws", "actor.aws"):
            (self.secrets / name).write_text("[default]\n")
        subprocess.run(run, check=True, capture_output=True)  # gives the new files to who reads them

    def _database(self) -> None:
        server, nobody = self.folder / "postgres", pwd.getpwnam("nobody")
        for name in ("db.pem", "db.key"):
            shutil.copy(self.secrets / name, self.folder / name)
            os.chown(self.folder / name, nobody.pw_uid, nobody.pw_gid)
        options = (
            "-c",
            "ssl=on",
            "-c",
            f"ssl_cert_file={self.folder}/db.pem",
            "-c",
            f"ssl_key_file={self.folder}/db.key",
        )
        self.db = Postgres.start(server, options)
        self.closing.callback(self.db.stop)
        roles = (self.secrets / "roles.sql").read_bytes()
        subprocess.run(
            ["psql", "-q", "-v", "ON_ERROR_STOP=1", self.db.url], input=roles, check=True, capture_output=True
        )
        for name in ("database.url", "owner.url"):
            text = (self.secrets / name).read_text()
            assert text.count("@db/") == 1
            with (self.secrets / name).open("w") as out:  # stays the user's
                out.write(text.replace("@db/", f"@db:{self.db.port}/"))

    def _broker(self) -> None:
        conf = self.folder / "valkey.conf"
        users = (self.secrets / "users.acl").read_text() + "user looks on nopass -@all +client|list\n"
        (self.folder / "users.acl").write_text(users)
        conf.write_text(
            f'bind 127.0.0.1\nport {self.plain}\naclfile {self.folder}/users.acl\nsave ""\nappendonly no\n'
            f"maxmemory-policy noeviction\ndir {self.folder}\nloglevel warning\nlogfile {self.folder}/valkey.log\n"
        )
        self.closing.callback(_end, subprocess.Popen([valkey.binary(), str(conf)]))
        for _ in range(250):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.plain), 1):
                return
            time.sleep(0.02)
        raise AssertionError((self.folder / "valkey.log").read_text())

    def connected(self) -> set[tuple[str, str]]:
        """(user of the broker, its last command) of each connection."""
        with redis.Redis(port=self.plain, username="looks", password="any") as broker:
            return {(one["user"], one["cmd"]) for one in broker.client_list()}

    # --- processes

    def _jail(self, name: str, more: dict[str, tuple[Path, str]]) -> Jail:
        folder = self.folder / name
        home = folder / "home"
        home.mkdir(parents=True)
        os.chown(home, USER, USER)
        inside = {
            "/opt/healthboard": (self.tree / "opt/healthboard", "ro"),
            "/opt/healthboard/.venv": (Path(sys.prefix), "ro"),
            HOME: (home, "rw"),
            **{f"/etc/{one}": (self.folder / one, "ro") for one in ("hosts", "passwd", "group")},
            **more,
        }
        jail = Jail(folder, empty=["/opt", "/var/lib", "/run"], inside=inside)
        setattr(self, f"_{name}", jail)
        return jail

    def settings(self, name: str) -> dict[str, str]:
        """As the service has them; only where it listens, and how much it does at once, is this test's."""
        env = {**image().env, **env_file(), **compose()["services"][name]["environment"]}
        assert env["HEALTHBOARD_BIND"] == "0.0.0.0:8000"
        return {**env, "HEALTHBOARD_BIND": f"127.0.0.1:{self.web}", "HEALTHBOARD_CONCURRENCY": "1"}

    def command(self, name: str, argv: list[str] | None = None) -> list[str]:
        service = compose()["services"][name]
        return [*service.get("entrypoint", image().entrypoint), *service["command"]] if argv is None else argv

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """`docker compose run --rm NAME WORDS…`, to its end: the words replace the service's command."""
        service = compose()["services"][name]
        if not hasattr(self, f"_{name}"):
            self._jail(name, {f"/run/secrets/{one}": (self.secrets / one, "ro") for one in service["secrets"]})
        return self.ended(name, [*service.get("entrypoint", image().entrypoint), *words], self.settings(name))

    def home(self, name: str) -> Path:
        return self.folder / name / "home"

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text()

    def start(self, name: str) -> subprocess.Popen:
        service = compose()["services"][name]
        jail = self._jail(name, {f"/run/secrets/{one}": (self.secrets / one, "ro") for one in service["secrets"]})
        with (self.folder / name / "log").open("w") as log:
            process = jail.start(self._at(self.command(name)), self.settings(name), USER, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def ended(self, name: str, argv: list[str], env: dict[str, str], user: int = USER) -> tuple[int, str]:
        """Another command in the same jail, as `docker exec` would run it, to its end."""
        done = subprocess.run(
            getattr(self, f"_{name}").command(self._at(argv), env, user), capture_output=True, text=True, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    def _at(self, argv: list[str]) -> list[str]:
        return ["env", "-C", image().workdir, *argv]

    def close(self) -> None:
        for process in self.processes:
            _end(process)
        self.closing.close()


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(10)


def complaints(text: str) -> list[str]:
    """Lines that tell of a file that could not be written, or of anything that broke."""
    return re.findall(
        r".*(?:Read-only file system|Errno 30|Permission denied|PermissionError|NOPERM|SecurityWarning|Traceback).*",
        text,
    )

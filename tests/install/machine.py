"""What a newcomer's machine has before the first command: Python, the packages that pip would fetch, the release, and two servers
with certificates of one authority. Everything lies below one folder that other users can enter."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import psycopg
import trustme
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.install.guide import ROOT, unprivileged
from tests.services import Postgres

#: what a release is made of
SHIPPED = (
    "healthboard", "workers", "templates", "docs", "manage.py", "requirements.txt", "pyproject.toml", "README.md", "LICENSE",
)  # fmt: skip


def python(folder: Path) -> Path:
    """The folder with a `python3` of this version that an unprivileged user may run; a copy of ours where there is none."""
    for found in (Path(sys.base_prefix) / "bin", Path("/usr/bin"), Path("/usr/local/bin")):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            told = subprocess.run(
                [found / "python3", "-c", "import ensurepip, venv, sys; print(*sys.version_info[:3])"], check=True,
                capture_output=True, text=True, cwd="/", **unprivileged(),
            ).stdout.split()  # fmt: skip
            if told == [str(part) for part in sys.version_info[:3]]:
                return found
    copy, lib = folder / "python", f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (copy / "bin").mkdir(parents=True)
    shutil.copy2(Path(sys.base_prefix) / "bin" / lib, copy / "bin" / "python3")
    left = shutil.ignore_patterns("test", "idlelib", "site-packages", "config-*", "*.a")
    shutil.copytree(Path(sys.base_prefix) / "lib" / lib, copy / "lib" / lib, ignore=left)
    for shared in (Path(sys.base_prefix) / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, copy / "lib")
    return copy / "bin"


def packages(folder: Path) -> Path:
    """What requirements.txt asks for, and what that asks for, and nothing else, taken from this environment: pip finds it
    there and fetches nothing; what the shipped code needs besides is missing."""
    todo = [Requirement(line) for line in (ROOT / "requirements.txt").read_text().splitlines() if line[:1].isalpha()]
    extras: dict[str, set[str]] = {}
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if extras.get(name, set()) >= {"", *wanted.extras}:
            continue
        extras.setdefault(name, set()).update({"", *wanted.extras})
        for line in importlib.metadata.distribution(name).requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras[name]):
                todo.append(needed)
    for name in extras:
        found = importlib.metadata.distribution(name)
        for file in found.files or ():
            if ".." not in file.parts and (source := Path(str(found.locate_file(file)))).is_file():
                _same(source, folder / file)
    return folder


def _same(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def release(path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as packed:
        for name in SHIPPED:
            packed.add(ROOT / name, f"healthboard/{name}", filter=lambda i: None if "__pycache__" in i.name else i)
    path.chmod(0o644)


class Database:
    """A server that wants TLS of everybody and a password of all but its administrator."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        folder.mkdir()
        certificate = authority.issue_cert("localhost")
        certificate.private_key_pem.write_to_path(str(folder / "key"))
        for link in certificate.cert_chain_pems:
            link.write_to_path(str(folder / "pem"), append=True)
        (folder / "key").chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(folder / "key", "nobody")
        ssl = ("-c", "ssl=on", "-c", f"ssl_cert_file={folder / 'pem'}", "-c", f"ssl_key_file={folder / 'key'}")
        self.server = Postgres.start(folder / "data", ssl)
        (folder / "data" / "pg_hba.conf").write_text(
            "hostssl all postgres 127.0.0.1/32 trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
        )
        self.server.process.send_signal(signal.SIGHUP)
        self.at = f"localhost:{self.server.port}"

    def ask(self, statement: str, database: str = "healthboard") -> list[tuple]:
        with psycopg.connect(f"postgres://postgres@{self.at}/{database}?sslmode=require", autocommit=True) as connected:
            cursor = connected.execute(statement)
            return cursor.fetchall() if cursor.description else []

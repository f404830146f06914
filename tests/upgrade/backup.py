"""A backup and its restore, with PostgreSQL's own programs, as docs say it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connections

from healthboard.audit import chain, heads
from healthboard.cases.calls import CHANGING
from healthboard.sandbox.status import status
from tests.services import binary


@dataclass(frozen=True)
class Copy:
    path: Path
    head: str  # the end of the audit chain in it

    def restore(self) -> None:
        """Over the database of this process, which is dropped first."""
        name = settings.DATABASES["default"]["NAME"]
        connections.close_all()
        with psycopg.connect(_url("postgres"), autocommit=True) as server:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
            server.execute(f'CREATE DATABASE "{name}"')
        subprocess.run(
            [binary("pg_restore"), "--no-owner", "--exit-on-error", "-d", _url(name), str(self.path)], check=True
        )


def take(path: Path) -> Copy:
    """The chain is sealed and its head noted first, so that the copy can be told to be whole."""
    chain.seal()
    heads.keep()
    here = chain.end()
    assert here is not None
    name = settings.DATABASES["default"]["NAME"]
    subprocess.run([binary("pg_dump"), "-Fc", "-f", str(path), _url(name)], check=True)
    return Copy(path, here.hash)


def _url(name: str) -> str:
    at = settings.DATABASES["default"]
    return f"postgres://{at['USER']}@{at['HOST']}:{at['PORT']}/{name}"


def changing(drive: Any) -> list[dict[str, Any]]:
    """Every changing call that AWS carried out, in order."""
    with drive.fleet.engine.sandbox.lock:
        calls = status(drive.fleet.engine.sandbox, drive.fleet.url)["calls"]
    return [call for call in calls if call["operation"] in CHANGING and call["outcome"] == "ok"]

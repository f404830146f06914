"""The state file: entities as JSON rows, the log of calls, and a few settings.

One connection, used under the sandbox's lock. WAL without a sync per commit: a killed process loses nothing that was
committed, a power cut may lose the last moments, which a toy may.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from healthboard.sandbox.config import BadSetting
from healthboard.sandbox.entities import KINDS, Entity

CALLS_KEPT = 50_000
SCHEMA = """
create table if not exists entity (
    account text, region text, kind text, id text, body text not null, primary key (account, region, kind, id)
) without rowid;
create table if not exists call (
    n integer primary key, at real, account text, region text, service text, operation text, target text, outcome text
);
create table if not exists setting (name text primary key, value text) without rowid;
"""


class Store:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = open(path.with_suffix(".lock"), "w")  # noqa: SIM115 - held until the end
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise BadSetting(f"another sandbox is running on {path.parent}") from None
        self.db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=normal")
        self.db.executescript(SCHEMA)
        self._pending_calls: list[tuple[Any, ...]] = []
        self._since_trim = 0

    def load(self) -> Iterator[tuple[tuple[str, str], Entity]]:
        for account, region, kind, body in self.db.execute("select account, region, kind, body from entity"):
            if kind in KINDS:
                known = {f.name for f in fields(KINDS[kind])}  # type: ignore[arg-type]
                yield (account, region), KINDS[kind](**{k: v for k, v in json.loads(body).items() if k in known})

    def setting(self, name: str, default: Any = None) -> Any:
        row = self.db.execute("select value from setting where name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else default

    def set_setting(self, name: str, value: Any) -> None:
        self.db.execute("insert or replace into setting values (?, ?)", (name, json.dumps(value)))

    def log_call(
        self, at: float, where: tuple[str, str], service: str, operation: str, target: str, outcome: str
    ) -> None:
        """Kept in memory until the next `write`."""
        self._pending_calls.append((at, *where, service, operation, target, outcome))

    def write(
        self,
        dirty: Iterable[tuple[tuple[str, str], Entity]],
        removed: Iterable[tuple[tuple[str, str], str, str]],
    ) -> None:
        """Commit changed entities, removals and logged calls in one transaction."""
        calls, self._pending_calls = self._pending_calls, []
        rows = [(*where, e.kind, e.id, json.dumps(e.body(), separators=(",", ":"))) for where, e in dirty]
        gone = [(*where, kind, id_) for where, kind, id_ in removed]
        if not (rows or gone or calls):
            return
        self.db.execute("begin immediate")
        if rows:
            self.db.executemany("insert or replace into entity values (?, ?, ?, ?, ?)", rows)
        if gone:
            self.db.executemany("delete from entity where account=? and region=? and kind=? and id=?", gone)
        if calls:
            self.db.executemany(
                "insert into call (at, account, region, service, operation, target, outcome) values (?,?,?,?,?,?,?)",
                calls,
            )
            self._since_trim += len(calls)
            if self._since_trim > 1000:
                self._since_trim = 0
                self.db.execute("delete from call where n < (select max(n) from call) - ?", (CALLS_KEPT,))
        self.db.execute("commit")

    def calls(self) -> list[tuple[float, str, str, str, str, str, str]]:
        """Oldest first: (at, account, region, service, operation, target, outcome)."""
        stored = self.db.execute(
            "select at, account, region, service, operation, target, outcome from call order by n"
        ).fetchall()
        return stored + self._pending_calls

    def close(self) -> None:
        self.db.close()
        self._lock.close()

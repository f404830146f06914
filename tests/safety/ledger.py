"""What was tried, by which engine, and what came of it: of a call, `var/safety/trials.sqlite3`; see `tests.safety.kept`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

COLUMNS = (
    "engine", "row", "flow", "point", "seed", "at", "broken", "reached", "recovery", "cpu_s", "size", "classes",
)  # fmt: skip
JSON = ("broken", "classes")
SCHEMA = f"""
create table if not exists result ({", ".join(COLUMNS)}, primary key (engine, row, flow, point, seed)) without rowid;
create table if not exists failure (at text, engine text, spec text, why text);
"""


class Ledger:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.db.row_factory = sqlite3.Row
        self.db.executescript(SCHEMA)

    def keep(self, by: str, spec: dict[str, Any], result: dict[str, Any]) -> None:
        """One trial's result; a trial that says nothing is kept apart, and tried again by a later call."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        if "failed" in result:
            self.db.execute("insert into failure values (?,?,?,?)", (now, by, json.dumps(spec), result["failed"]))
            return
        self.put(
            engine=by, row=spec["row"], flow=spec["flow"], point=spec.get("point", ""), seed=spec.get("seed", 0), at=now,
            broken=result["broken"], reached=result.get("reached", 0), recovery=result.get("recovery", 0),
            cpu_s=result["cpu_s"], size=result.get("size", 1), classes=result.get("classes"),
        )  # fmt: skip

    def put(self, **values: Any) -> None:
        """One row of results; the newest of the same engine, row, flow, point and seed stays."""
        given = [json.dumps(values[name]) if name in JSON else values[name] for name in COLUMNS]
        self.db.execute(f"insert or replace into result values ({','.join('?' * len(COLUMNS))})", given)

    def failed(self, by: str, count: int) -> None:
        """So many trials of an earlier call, on another machine perhaps, gave no result."""
        for number in range(self.failures(by), count):
            self.db.execute("insert into failure values (?,?,?,?)", (str(number), by, "{}", "earlier"))

    def done(self, by: str) -> set[tuple[str, str, str, int]]:
        rows = self.db.execute("select row, flow, point, seed from result where engine = ?", (by,))
        return {(r["row"], r["flow"], r["point"], r["seed"]) for r in rows}

    def of(self, by: str, row: str) -> list[sqlite3.Row]:
        """What came of the trials of one row with this engine."""
        return self.db.execute("select * from result where engine = ? and row = ?", (by, row)).fetchall()

    def classes(self, by: str) -> dict[str, dict[str, list[list[Any]]]]:
        """Flow -> its classes of fault points, as recorded with this engine."""
        rows = self.db.execute("select flow, classes from result where engine = ? and row = 'points'", (by,))
        return {r["flow"]: json.loads(r["classes"]) for r in rows if r["classes"] != "null"}

    def counted(self, by: str, row: str, least: int) -> int:
        """Runs of a row that did their harm; one trial may hold several."""
        told = self.db.execute(
            "select sum(size) from result where engine = ? and row = ? and reached >= ?", (by, row, least)
        )
        return told.fetchone()[0] or 0

    def seconds(self, row: str) -> float | None:
        """Of processor time that a trial of this row took, on average, whatever the engine."""
        return self.db.execute("select avg(cpu_s) from result where row = ?", (row,)).fetchone()[0]

    def last(self, row: str) -> str:
        """The engine that a row was tried with last; empty where it never was."""
        found = self.db.execute("select engine from result where row = ? order by at desc limit 1", (row,)).fetchone()
        return found["engine"] if found else ""

    def results(self, by: str | None = None) -> Iterable[sqlite3.Row]:
        if by is None:
            return self.db.execute("select * from result order by at").fetchall()
        return self.db.execute("select * from result where engine = ? order by at", (by,)).fetchall()

    def failures(self, by: str) -> int:
        return self.db.execute("select count(*) from failure where engine = ?", (by,)).fetchone()[0]

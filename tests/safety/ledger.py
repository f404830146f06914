"""What was tried, by which engine, and what came of it: `var/safety/ledger.sqlite3`, which outlives each call."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: the code whose harmlessness is on trial: a change of any of it makes older results stale
ENGINE = (
    "workers/**/*.py", "healthboard/repairs/**/*.py", "healthboard/cases/**/*.py", "healthboard/audit/**/*.py",
    "healthboard/policies/**/*.py", "healthboard/fleet/**/*.py", "healthboard/diagnosis/**/*.py", "healthboard/aws.py",
    "healthboard/clock.py", "healthboard/celery.py", "healthboard/wake.py", "healthboard/refusals.py",
)  # fmt: skip
SCHEMA = """
create table if not exists result (
    engine text, row text, flow text, point text, seed integer, at text, spec text, broken text, reached integer,
    recovery integer, wall_s real, cpu_s real, more text, primary key (engine, row, flow, point, seed)
) without rowid;
create table if not exists failure (at text, engine text, spec text, why text);
"""


def engine(root: Path = ROOT) -> str:
    """Hash of the engine's code, 12 hex digits."""
    paths = sorted({p for pattern in ENGINE for p in root.glob(pattern) if "node" not in p.parts})
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


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
        known = ("spec", "broken", "reached", "recovery", "wall_s", "cpu_s")
        more = {k: v for k, v in result.items() if k not in known}
        self.db.execute(
            "insert or replace into result values (?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (by, spec["row"], spec["flow"], spec.get("point", ""), spec.get("seed", 0), now, json.dumps(spec),
             json.dumps(result["broken"]), result.get("reached", 0), result.get("recovery", 0), result["wall_s"],
             result["cpu_s"], json.dumps(more)),
        )  # fmt: skip

    def done(self, by: str) -> set[tuple[str, str, str, int]]:
        rows = self.db.execute("select row, flow, point, seed from result where engine = ?", (by,))
        return {(r["row"], r["flow"], r["point"], r["seed"]) for r in rows}

    def classes(self, by: str) -> dict[str, dict[str, list[list[Any]]]]:
        """Flow -> its classes of fault points, as recorded with this engine."""
        rows = self.db.execute("select flow, more from result where engine = ? and row = 'points'", (by,))
        return {r["flow"]: json.loads(r["more"])["classes"] for r in rows}

    def results(self, by: str | None = None) -> Iterable[sqlite3.Row]:
        if by is None:
            return self.db.execute("select * from result order by at").fetchall()
        return self.db.execute("select * from result where engine = ? order by at", (by,)).fetchall()

    def failures(self, by: str) -> int:
        return self.db.execute("select count(*) from failure where engine = ?", (by,)).fetchone()[0]

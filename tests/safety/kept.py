"""Results that outlive a checkout: `results.csv`, a line for each trial, and `points.json.gz`, what recordings found.

Of each row they hold what the present engine was tried with or, where it was not, what another was last.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

from tests.safety.engine import ROOT
from tests.safety.ledger import Ledger
from tests.safety.plan import ROWS

FOLDER = ROOT / "tests" / "safety"
RESULTS, POINTS = "results.csv", "points.json.gz"
COLUMNS = ("engine", "row", "flow", "point", "seed", "at", "reached", "recovery", "size", "cpu_s", "broken")
NUMBERS = {"seed": int, "reached": int, "recovery": int, "size": int, "cpu_s": float}
#: the line that counts the trials of an engine that gave no result
FAILURES = "no result"


def load(ledger: Ledger, folder: Path = FOLDER) -> None:
    """What the files hold goes into the ledger, whose own results of the same trials stay."""
    if not (folder / RESULTS).exists():
        return
    recorded = json.loads(gzip.decompress((folder / POINTS).read_bytes())) if (folder / POINTS).exists() else {}
    with (folder / RESULTS).open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    done = {by: ledger.done(by) for by in {row["engine"] for row in rows}}
    ledger.db.execute("begin")
    for row in rows:
        values = {**row, **{name: make(row[name]) for name, make in NUMBERS.items()}}
        if row["row"] == FAILURES:
            ledger.failed(row["engine"], values["size"])
            continue
        if (row["row"], row["flow"], row["point"], values["seed"]) in done[row["engine"]]:
            continue
        classes = recorded.get(row["engine"], {}).get(row["flow"]) if row["row"] == "points" else None
        if row["row"] != "points" or classes:
            ledger.put(**{**values, "broken": json.loads(row["broken"] or "[]"), "classes": classes})
    ledger.db.execute("commit")


def save(ledger: Ledger, by: str, folder: Path = FOLDER) -> None:
    """Write both files anew, in an order of their own, each in one move."""
    lines, recorded = [], {}
    for row in ROWS:
        tried = by if any(r["row"] == row for r in ledger.results(by)) else ledger.last(row)
        for result in ledger.results(tried):
            if result["row"] == row:
                lines.append({**{name: result[name] for name in COLUMNS}, "broken": result["broken"].replace("[]", "")})
        if row == "points" and tried:
            recorded[tried] = ledger.classes(tried)
    for tried in sorted({line["engine"] for line in lines}):
        if count := ledger.failures(tried):
            empty = dict.fromkeys(NUMBERS, 0)
            lines.append({**dict.fromkeys(COLUMNS, ""), **empty, "engine": tried, "row": FAILURES, "size": count})
    lines.sort(key=lambda line: (line["row"], line["flow"], line["point"], line["seed"]))
    new = folder / f"{RESULTS}.new"
    with new.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    new.replace(folder / RESULTS)
    packed = gzip.compress(json.dumps(recorded, sort_keys=True).encode(), mtime=0)
    if not (folder / POINTS).exists() or (folder / POINTS).read_bytes() != packed:
        (folder / f"{POINTS}.new").write_bytes(packed)
        (folder / f"{POINTS}.new").replace(folder / POINTS)

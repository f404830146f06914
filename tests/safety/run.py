"""`make safety`: goes on with the trials where the last call stopped, ends within its minutes, writes the report."""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.safety import estimate, kept, report
from tests.safety.board import die_with_parent
from tests.safety.engine import ROOT, engine
from tests.safety.ledger import Ledger
from tests.safety.plan import ROWS, left

LEDGER = ROOT / "var" / "safety" / "trials.sqlite3"


class Slot:
    """A child process that runs trials: see `tests.safety.slot`."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.safety.slot", str(folder)], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent,
        )  # fmt: skip

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        try:
            self.process.stdin.write(json.dumps(spec) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError("a slot has ended")
        return json.loads(line)

    def stop(self) -> None:
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.terminate()
            self.process.wait(20)


def _end_with_parent() -> None:
    die_with_parent(signal.SIGTERM)


class Call:
    """One call of `make safety`: its slots, its end, and what it found."""

    def __init__(self, ledger: Ledger, slots: list[Slot], end: float, most: int, flows: list[str]) -> None:
        self.ledger, self.slots, self.end, self.most, self.flows = ledger, slots, end, most, flows
        self.by = engine()
        self.bad = 0

    def left(self, row: str) -> Iterator[dict[str, Any]]:
        """What of a row this engine has not been through."""
        for spec in left(row, self.ledger.classes(self.by), self.ledger.of(self.by, row)):
            if not self.flows or spec["flow"] in self.flows:
                yield spec

    def carry_out(self, row: str) -> None:
        """As much of a row as is wanted and as there is time for."""
        wanted, least = ROWS[row].wanted, ROWS[row].least
        runs = self.ledger.counted(self.by, row, least)
        specs = list(self.left(row)) if not wanted or runs < wanted else []
        todo: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for spec in specs[: max(self.most, 0) if row != "points" else None]:
            todo.put(spec)
        self.most -= 0 if row == "points" else min(len(specs), self.most)
        results: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

        def serve(slot: Slot) -> None:
            try:
                while time.monotonic() < self.end and (not wanted or runs < wanted):
                    results.put(slot.run(todo.get_nowait()))
            except queue.Empty:
                pass
            finally:
                results.put(None)

        for slot in self.slots:
            threading.Thread(target=serve, args=(slot,), daemon=True).start()
        working = len(self.slots)
        while working:
            result = results.get()
            if result is None:
                working -= 1
                continue
            spec = result.pop("spec")
            self.ledger.keep(self.by, spec, result)
            self.bad += bool(result.get("broken"))
            if result.get("reached", -1) >= least:
                runs += result.get("size", 1)
            _tell(spec, result)
        if specs:
            kept.save(self.ledger, self.by)


def _tell(spec: dict[str, Any], result: dict[str, Any]) -> None:
    name = f"{spec['row']} {spec['flow']} {spec.get('point', '')} #{spec.get('seed', 0)}"
    if "failed" in result:
        print(f"FAILED  {name}: {result['failed'].strip().splitlines()[-1]}", flush=True)
    elif result["broken"]:
        print(f"BROKEN  {name}: {'; '.join(result['broken'])}", flush=True)
    else:
        print(f"ok      {name} ({result['cpu_s']} s)", flush=True)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--row", action="append", choices=list(ROWS), help="only this row (may be given again)")
    words.add_argument("--flow", action="append", default=[], help="only this flow (may be given again)")
    words.add_argument("--minutes", type=float, default=50)
    words.add_argument("--jobs", type=int, default=2)
    words.add_argument("--most", type=int, default=10**9, help="so many trials at most")
    words.add_argument("--report", action="store_true", help="only write the report")
    words.add_argument(
        "--plan", action="store_true", help="only say what is planned, what is left and how long it takes"
    )
    given = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the slots and their folders are cleared away all the same
    ledger, bad = Ledger(LEDGER), 0
    kept.load(ledger)
    if given.plan:
        print(estimate.table(ledger, engine(), given.jobs))
        return 0
    try:
        if not given.report:
            bad = _call(ledger, given)
    finally:  # also of a call that was ended
        kept.save(ledger, engine())
        report.write(ledger, engine())
    return 1 if bad else 0


def _call(ledger: Ledger, given: argparse.Namespace) -> int:
    end = time.monotonic() + given.minutes * 60 - 45  # for the trials under way, and the end of the servers
    root = Path(tempfile.mkdtemp(prefix="healthboard-safety-"))
    os.chmod(root, 0o755)  # the database's own user must reach its folder
    slots = [Slot(root / f"slot{number}") for number in range(given.jobs)]
    call = Call(ledger, slots, end, given.most, given.flow)
    try:
        rows = given.row or list(ROWS)
        if "points" not in rows and any(ROWS[row].recorded for row in rows):
            rows.insert(0, "points")
        for row in rows:
            call.carry_out(row)  # what one records, the next is planned from
    finally:
        for slot in slots:
            slot.stop()
        shutil.rmtree(root, ignore_errors=True)
    return call.bad


if __name__ == "__main__":
    sys.exit(main())

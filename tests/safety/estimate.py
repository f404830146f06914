"""`make safety ARGS=--plan`: per row what is planned, what is left, and how long it takes on idle cores."""

from __future__ import annotations

from tests.safety.ledger import Ledger
from tests.safety.plan import FLOWS, ROWS, SECONDS, Row, left

#: fault points' classes of a flow before any was recorded, as they mostly are: for a first estimate
USUAL = {flow: {f"class {n}": [[f"|call Name{n % 24}||before", 1]] for n in range(65)} for flow in FLOWS}


def table(ledger: Ledger, by: str, jobs: int) -> str:
    """Measured seconds where the row was tried with any engine, else those of the plan."""
    classes = ledger.classes(by) or USUAL
    lines = [f"{'row':<14}{'wanted':>8}{'done':>8}{'trials left':>13}{'s each':>8}{'minutes':>9}"]
    total = 0.0
    for name, row in ROWS.items():
        tried, runs = ledger.of(by, name), ledger.counted(by, name, row.least)
        planned = sum(1 for _ in row.specs(classes))
        open_ = _open(row, len(tried), runs) if row.wanted else sum(1 for _ in left(name, classes, tried))
        each = ledger.seconds(name) or SECONDS.get(name, 6.0)
        minutes = open_ * each / jobs / 60
        total += minutes
        lines.append(
            f"{name:<14}{row.wanted or planned:>8}{runs:>8}{open_:>13}{each:>8.1f}{minutes:>9.1f}"
        )  # fmt: skip
    if not ledger.classes(by):
        lines.append("No fault points were recorded with this engine yet: their number is that of an earlier one.")
    return "\n".join([*lines, f"together {total:.0f} minutes of {jobs} idle cores"])


def _open(row: Row, trials: int, runs: int) -> int:
    """Trials until the runs are reached that are wanted, at as many in a trial as so far."""
    each = runs / trials if trials else row.holds
    return max(round((row.wanted - runs) / max(each, 0.1)), 0)

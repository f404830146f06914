"""`docs/safety-report.md`: per row what was tried, what was found, and what finding nothing shows."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.safety.engine import ROOT
from tests.safety.ledger import Ledger
from tests.safety.plan import ROWS, Row

PATH = ROOT / "docs" / "safety-report.md"
LOAD = Path(__file__).with_name("load.json")
MATRIX = ROOT / "tests" / "access" / "matrix.txt"
#: of the design: so many nodes, each with a report every 15 s
NODES, INTERVAL_S = 10_000, 15
HEAD = """# What the safety trials showed

Written by `make safety`, which goes on where its last call stopped. Each trial runs a whole repair on a real PostgreSQL,
a real Valkey and real Celery worker processes against the sandbox's AWS, does it harm, and then reads the database and
AWS's own log of calls: every invariant (see `invariants.md`), each call as often as meant, capacity as before, the
decision carried out once. How it is done: `decisions/0029-how-the-safety-trials-kill-and-measure.md`.

*Runs* counts the trials in which the harm was done (a trial that ended before its point was reached proves nothing and is
not counted; in T1 a further seed at the same point stands in for it); *of* is how many were meant. *Recovery* is the worst
number of sweeps between a kill and the next worker's claim; 2 are allowed. Where nothing was found in n runs, the true rate
is below *3/n*, at 95 % confidence.
"""


def write(ledger: Ledger, by: str, path: Path = PATH) -> None:
    lines = [HEAD, f"Engine `{by}`.\n"]
    lines += _table(ledger, by)
    lines += _flows(ledger, by)
    lines += _broken(ledger, by)
    lines += load(json.loads(LOAD.read_text()) if LOAD.exists() else None)
    lines += _matrix()
    path.write_text("\n".join(lines))


def _table(ledger: Ledger, by: str) -> list[str]:
    lines = [
        "| Row | Trial | Runs | of | Seeds | Violations | Worst recovery | 3/n | Engine |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for result in ledger.results():
        rows[result["row"]][result["engine"]].append(result)
    for name, row in ROWS.items():
        engines = rows.get(name, {})
        if not engines:
            lines.append(f"| {name} | {row.title} | 0 | {row.wanted or ''} | | | | | not run |")
            continue
        which = by if by in engines else max(engines, key=lambda e: max(r["at"] for r in engines[e]))
        counted = [r for r in engines[which] if r["reached"] >= row.least]
        bad = sum(1 for r in engines[which] if json.loads(r["broken"]))  # also of a trial that never came to its harm
        runs = sum(r["size"] for r in counted)
        lines.append(
            f"| {name} | {row.title} | {runs:,} | {_meant(ledger, which, row):,} | {len({r['seed'] for r in counted})} | "
            f"{bad} | {max((r['recovery'] for r in counted), default=0)} | {_bound(runs, bad)} | "
            f"{'this' if which == by else f'**stale**: `{which}`'} |"
        )
    return [*lines, ""]


def _meant(ledger: Ledger, by: str, row: Row) -> int:
    return row.wanted or sum(1 for _ in row.specs(ledger.classes(by)))


def _bound(runs: int, bad: int) -> str:
    return f"{3 / runs:.2g}" if runs and not bad else ""


def _flows(ledger: Ledger, by: str) -> list[str]:
    flows: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for result in ledger.results(by):
        if result["reached"] >= ROWS[result["row"]].least:
            flows[result["row"], result["flow"]].append(result)
    if not flows:
        return []
    lines = [
        "## By flow",
        "",
        "| Row | Flow | Points | Runs | Violations | CPU s per trial |",
        "|---|---|---|---|---|---|",
    ]
    for (row, flow), results in sorted(flows.items()):
        bad = sum(1 for r in results if json.loads(r["broken"]))
        cpu = sum(r["cpu_s"] for r in results) / len(results)
        lines.append(f"| {row} | {flow} | {len({r['point'] for r in results})} | {len(results)} | {bad} | {cpu:.1f} |")
    return [*lines, ""]


def _broken(ledger: Ledger, by: str) -> list[str]:
    bad = [r for r in ledger.results(by) if json.loads(r["broken"])]
    lines = ["## Violations", ""]
    if failures := ledger.failures(by):
        lines += [
            f"{failures} trials gave no result (a server or a process of the harness failed) and were repeated.",
            "",
        ]
    if not bad:
        return [*lines, "None.", ""]
    for r in bad:
        lines.append(f"- {r['row']} {r['flow']} `{r['point']}` seed {r['seed']}: {'; '.join(json.loads(r['broken']))}")
    return [*lines, ""]


def load(told: dict[str, Any] | None) -> list[str]:
    """T18, from what `make load` wrote: `cores` of its machine and its `steps`, one of which was held longest."""
    lines = ["## Load (T18)", ""]
    if told is None:
        return [*lines, "Not run: `make load`.", ""]
    held = max(told["steps"], key=lambda step: step["seconds"])
    most = max((s for s in told["steps"] if _flat(s)), key=lambda s: s["nodes"], default=None)
    cpu = sum(held[name] for name in ("web_cpu_ms", "database_cpu_ms", "workers_cpu_ms"))
    rate = NODES / INTERVAL_S
    highest = "none"
    if most:
        highest = f"{most['nodes']:,} nodes, {most['per_second']} reports a second, p99 {most['p99_ms']} ms"
    lines += [
        f"`make load`, on a machine of {told['cores']} cores on which the load itself is made as well. Reports of eight GPUs each, every "
        f"{INTERVAL_S} s from each node, against gunicorn, PostgreSQL with its default durability, Valkey, workers and beat. "
        "*p50* and *p99* count from when a report was due. Memory is that of web and workers; *waiting* are wake-ups in the queues, "
        "*unread* instances whose new evidence was not yet read: each at the beginning, in the middle and at the end.",
        "",
        "| Nodes | s | Reports/s | Failed | p50 ms | p99 ms | CPU ms per report: web, database, workers | Memory MiB | Waiting | Unread |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {s['nodes']:,} | {s['seconds']:.0f} | {s['per_second']} | {s['failed']} | {s['p50_ms']} | {s['p99_ms']} | "
            f"{s['web_cpu_ms']}, {s['database_cpu_ms']}, {s['workers_cpu_ms']} | {_three(s['memory_mib'])} | {_three(s['backlog'])} | "
            f"{_three(s['unread'])} |"
            for s in told["steps"]
        ),
        "",
        f"Held for {held['seconds'] / 60:.0f} minutes: {held['nodes']:,} nodes, p99 {held['p99_ms']} ms, {cpu:.2f} ms of processor time "
        f"per report. By that, {NODES:,} nodes ({rate:.0f} reports a second) take {rate * cpu / 1000:.1f} cores of such a machine.",
        "",
        f"The highest rate at which nothing failed and nothing piled up: {highest}.",
        "",
    ]
    return lines


def _flat(step: dict[str, Any]) -> bool:
    """Whether all reports came in within the interval of the next, and neither queue nor memory grew in its second half."""
    unread = step["unread"][2] <= step["unread"][1] + step["nodes"] // 100
    waiting = step["backlog"][2] <= step["backlog"][1] + step["nodes"] // 100
    memory = step["memory_mib"][2] <= step["memory_mib"][1] * 1.05
    return not step["failed"] and step["p99_ms"] < INTERVAL_S * 1000 and unread and waiting and memory


def _three(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _matrix() -> list[str]:
    rows = sum(1 for line in MATRIX.read_text().splitlines() if line.strip() and not line.startswith("#"))
    return [
        "## Access matrix (T20)",
        "",
        f"No trials: each run of the tests asks all {rows} addresses and methods that there are as a person of each role, as one with "
        "every role elsewhere, as one with none and as nobody, without a CSRF token and with an old log-in (`tests/access`).",
        "",
    ]

"""What the safety trials count and report; the trials themselves run with `make safety`."""

from __future__ import annotations

from tests.safety import report, rows
from tests.safety.classes import classes, member
from tests.safety.ledger import Ledger, engine
from tests.safety.plan import ALONE, FLOWS, ROWS

POINTS = [
    ("|task sweep|tasks|before", 1, False),
    ("|write|claim|after", 1, True),
    ("drain|call DescribeTasks|look|before", 1, False),
    ("drain|call DescribeTasks|look|after", 1, False),
    ("drain|commit|intend|before", 1, False),
    ("drain|commit|intend|after", 1, True),
    ("drain|call Drain|change|before", 1, False),
    ("drain|call Drain|change|after", 1, True),
]


def test_points_between_two_lasting_effects_are_one_class():
    assert {key: [m[0] for m in members] for key, members in classes(POINTS).items()} == {
        "idle": ["|task sweep|tasks|before"],
        "|write|claim|after": ["|write|claim|after"],
        "|write|claim|after in drain": [p[0] for p in POINTS[2:5]],
        "drain|commit|intend|after": ["drain|commit|intend|after", "drain|call Drain|change|before"],
        "drain|call Drain|change|after": ["drain|call Drain|change|after"],
    }


def test_each_seed_takes_a_member_and_the_first_the_one_behind_the_effect():
    key = "|write|claim|after in drain"
    members = classes(POINTS)[key]
    assert member(members, key, 0) == POINTS[2][:2] and member(members, key, 1) == POINTS[4][:2]
    assert {member(members, key, seed) for seed in range(2, 40)} == {p[:2] for p in POINTS[2:5]}


def test_each_row_has_trials_and_somebody_who_runs_them():
    recorded = {flow: {k: [list(m) for m in v] for k, v in classes(POINTS).items()} for flow in FLOWS}
    for name, row in ROWS.items():
        specs = list(row.specs(recorded))
        assert specs and name in rows.RUNNERS
        keys = [(s["row"], s["flow"], s.get("point", ""), s.get("seed", 0)) for s in specs]
        assert len(keys) == len(set(keys)), name
        assert {s["flow"] for s in specs} <= {*FLOWS, "CASES/TEMPLATE", ALONE}


def spec(seed):
    return {"row": "T1", "flow": "REBOOT/GROUP", "point": "drain|commit|intend|after", "seed": seed}


def test_results_are_kept_by_engine_and_those_of_an_older_one_are_stale(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    fine = {"broken": [], "reached": 1, "recovery": 1, "wall_s": 1.0, "cpu_s": 1.0}
    ledger.keep("old", spec(0), fine)
    ledger.keep("old", spec(1), {**fine, "reached": 0})
    ledger.keep("old", spec(2), {"failed": "a server went away", "wall_s": 1.0, "cpu_s": 1.0})
    assert len(ledger.done("old")) == 2 and not ledger.done("new")
    path = tmp_path / "report.md"
    report.write(ledger, "new", path)
    assert "| T1 | killed at every fault point | 1 | 1 | 0 | 1 | 3 | **stale**: `old` |" in path.read_text()
    ledger.keep("new", spec(0), {**fine, "broken": ["INV4: two launches"]})
    report.write(ledger, "new", path)
    text = path.read_text()
    assert "| T1 | killed at every fault point | 1 | 1 | 1 | 1 |  | this |" in text and "INV4: two launches" in text


def test_the_engines_hash_follows_its_code(tmp_path):
    for name in ("workers/repair/engine.py", "healthboard/repairs/budget.py", "healthboard/approve/views.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    first = engine(tmp_path)
    (tmp_path / "healthboard/approve/views.py").write_text("2")
    assert engine(tmp_path) == first
    (tmp_path / "workers/repair/engine.py").write_text("2")
    assert engine(tmp_path) != first

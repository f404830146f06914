"""What the safety trials count and report; the trials themselves run with `make safety`."""

from __future__ import annotations

from pathlib import Path

from tests.safety import estimate, kept, report, rows
from tests.safety.classes import classes, member
from tests.safety.engine import engine, files
from tests.safety.ledger import Ledger
from tests.safety.plan import ALONE, CASES, CROWDS, FLOWS, ROWS, left

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
        assert {s["flow"] for s in specs} <= {*FLOWS, *CASES, *CROWDS, ALONE}


def spec(seed):
    return {"row": "T1", "flow": "REBOOT/GROUP", "point": "drain|commit|intend|after", "seed": seed}


def test_results_are_kept_by_engine_and_those_of_an_older_one_are_stale(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    fine = {"broken": [], "reached": 1, "recovery": 1, "wall_s": 1.0, "cpu_s": 1.0}
    ledger.keep("old", spec(0), fine)
    ledger.keep("old", spec(1), {**fine, "reached": 0})
    ledger.keep("old", spec(2), {"failed": "a server went away", "wall_s": 1.0, "cpu_s": 1.0})
    assert ledger.counted("old", "T1", 1) == 1
    assert len(ledger.done("old")) == 2 and not ledger.done("new")
    path = tmp_path / "report.md"
    report.write(ledger, "new", path)
    assert "| T1 | killed at every fault point | 1 | 0 | 1 | 0 | 1 | 3 | **stale**: `old` |" in path.read_text()
    ledger.keep("new", spec(0), {**fine, "broken": ["INV4: two launches"]})
    report.write(ledger, "new", path)
    text = path.read_text()
    assert "| T1 | killed at every fault point | 1 | 0 | 1 | 1 | 1 |  | this |" in text and "INV4: two launches" in text


def test_results_survive_their_checkout(tmp_path):
    fine = {"broken": [], "reached": 1, "recovery": 1, "wall_s": 1.0, "cpu_s": 1.5}
    first = Ledger(tmp_path / "first.sqlite3")
    points = {key: [list(m) for m in members] for key, members in classes(POINTS).items()}
    first.keep("new", {"row": "points", "flow": "REBOOT/GROUP"}, {**fine, "classes": points})
    first.keep("old", spec(0), fine)
    first.keep("old", {**spec(1), "row": "T14"}, {**fine, "broken": ['called, and "stopped"']})
    first.keep("new", spec(1), {**fine, "size": 8})
    first.keep("new", spec(2), {"failed": "a server went away", "wall_s": 1.0, "cpu_s": 1.0})
    kept.save(first, "new", tmp_path)
    again = Ledger(tmp_path / "again.sqlite3")
    kept.load(again, tmp_path)
    kept.load(again, tmp_path)
    assert again.done("new") == first.done("new") and again.classes("new") == first.classes("new")
    assert again.counted("new", "T1", 1) == 8 and again.failures("new") == 1
    assert {r[1] for r in again.done("old")} == {"REBOOT/GROUP"} and len(again.done("old")) == 1, (
        "only where no newer is"
    )
    before = (tmp_path / kept.RESULTS).read_text(), (tmp_path / kept.POINTS).read_bytes()
    kept.save(again, "new", tmp_path)
    assert ((tmp_path / kept.RESULTS).read_text(), (tmp_path / kept.POINTS).read_bytes()) == before
    assert [r["broken"] for r in again.results("old")] == ['["called, and \\"stopped\\""]']


def test_what_is_planned_is_what_was_asked_for():
    recorded = {flow: {k: [list(m) for m in v] for k, v in classes(POINTS).items()} for flow in FLOWS}
    wanted = {name: row.wanted for name, row in ROWS.items() if row.wanted}
    least = {"T2": 400, "T3": 200, "T4": 10_000, "T6": 1000, "T11": 50, "T12 worker": 10, "T13": 1000, "T16": 100_000,
             "T17": 1_000_000, "T19": 1000, "T21": 10_000}  # fmt: skip
    assert wanted == {**least, **{f"T5 {k}": 10 for k in ("restart", "read-only", "exhausted", "restored")}}
    counts = {name: len(list(row.specs(recorded))) for name, row in ROWS.items()}
    assert counts["T7"] == 20 and counts["T9"] == 20 and counts["T10"] == 80 and counts["T15"] == 10
    assert counts["T12"] + wanted["T12 worker"] == 50
    for name in wanted:
        assert counts[name] * ROWS[name].holds >= wanted[name], name
    first = [s for s in ROWS["T1"].specs(recorded) if s["flow"] == "REPLACE/GROUP"]
    assert len(first) == 5 * len(recorded["REPLACE/GROUP"])
    assert "together" in estimate.table(Ledger(Path(":memory:")), "none", 2)


def test_the_engines_hash_follows_what_decides_and_not_what_is_shown(tmp_path):
    texts = {
        "workers/repair/tasks.py": "from workers.repair import engine\n",
        "workers/repair/__init__.py": "",
        "workers/repair/engine.py": "def late():\n    from healthboard.repairs.budget import take\n",
        "healthboard/repairs/budget.py": "from healthboard.notices import outbox\nfrom healthboard.repairs import queries\n",
        "healthboard/repairs/queries.py": "1",
        "healthboard/notices/outbox.py": "1",
        "healthboard/approve/case.py": "from healthboard.repairs import budget\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    first = engine(tmp_path)
    for name in ("healthboard/approve/case.py", "healthboard/notices/outbox.py", "healthboard/repairs/queries.py"):
        (tmp_path / name).write_text("2")
        files.cache_clear()
        assert engine(tmp_path) == first, name
    (tmp_path / "healthboard/repairs/budget.py").write_text("2")
    files.cache_clear()
    assert engine(tmp_path) != first


def test_the_engine_is_all_that_acts_and_nothing_that_shows():
    found = files()
    for name in ("repairs/lifecycle", "repairs/budget", "repairs/brakes", "cases/answers", "cases/judge", "fleet/gaps",
                 "policies/resolve", "diagnosis/evaluate", "people/access"):  # fmt: skip
        assert f"healthboard/{name}.py" in found
    assert {"workers/repair/steps/replace.py", "workers/decide/breadth.py", "workers/verify/check.py"} <= {*found}
    shown = ("healthboard/approve/", "healthboard/notices/", "healthboard/sandbox/", "workers/notify/")
    assert not [p for p in found if p.startswith(shown) or p.endswith(("/views.py", "/admin.py"))]


def test_a_trial_that_ended_before_its_point_is_stood_in_for_until_enough_reached_it():
    recorded = {"REPLACE/GROUP": {"idle": [["|task sweep|tasks|before", 1], ["|write|claim|after", 1]]}}

    def then(*reached, first=0):
        results = [
            {"flow": "REPLACE/GROUP", "point": "idle", "seed": first + n, "reached": r} for n, r in enumerate(reached)
        ]
        return [spec["seed"] for spec in left("T1", recorded, results)]

    assert then() == [0, 1, 2, 3, 4]
    assert then(1, 1, 1) == [3, 4]
    assert then(0, 1, 1) == [3, 4, 5]
    assert then(1, 1, 1, 1, 1) == []
    assert then(0, 1, 0, 1, 1) == [5, 6]
    assert then(0, 1, 0, 1, 1, 1, 0) == [7]
    assert then(0, 1, 1, 1, 1, 1) == []
    assert then(0, 1, 1, 1, 1, 0, 0, 0, 0, 0) == [], "a point that is never reached does not hold the row up for ever"
    assert then(0, 0, 0, 0, 0) == [5, 6, 7, 8, 9]
    (stand_in,) = [s for s in left("T1", recorded, [{"flow": "REPLACE/GROUP", "point": "idle", "seed": 0, "reached": 0}])
                   if s["seed"] == 5]  # fmt: skip
    assert stand_in["points"][0] in [tuple(p) for p in recorded["REPLACE/GROUP"]["idle"]]
    assert stand_in == {**stand_in, "row": "T1", "flow": "REPLACE/GROUP", "point": "idle"}
    assert [s["seed"] for s in left("T7", recorded, [{"flow": ALONE, "point": "off", "seed": 0, "reached": 0}])].count(
        0
    ) == 1

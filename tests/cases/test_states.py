"""Only legal moves happen, and only the lifecycles make them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from healthboard.audit.models import AuditRow
from healthboard.cases import lifecycle as cases
from healthboard.cases import states as case_states
from healthboard.people.actors import WORKER
from healthboard.repairs import lifecycle as repairs
from healthboard.repairs import states as repair_states
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene

ROOT = Path(__file__).resolve().parents[2]
#: rows whose state is kept by a lifecycle, and how a manager writes them
KEPT = {"Case", "Repair", "Step", "Call", "Occupancy", "Decision", "Evidence", "WouldHave"}
WRITES = {"update", "create", "bulk_create", "bulk_update", "delete", "get_or_create", "update_or_create"}
OTHER_FORMS = re.compile(r"\b(repair|case|row|group|member)\.(state|fence|resolution)\s*=(?!=)")
WRITERS = {
    "healthboard/cases/lifecycle.py": {"Case", "Evidence", "Decision"},
    "healthboard/cases/shadow.py": {"WouldHave"},
    "healthboard/repairs/lifecycle.py": {"Repair", "Step", "Call"},
    "healthboard/repairs/budget.py": {"Occupancy"},
    # a whole history at once, in bulk: sandbox mode only, see docs/decisions/0046-a-made-up-fleet.md
    "healthboard/seed/rows.py": {"Case", "Evidence", "Decision", "Repair", "Step", "Call", "Occupancy"},
}


def sources():
    for top in ("healthboard", "workers"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def written(text):
    """Names of the kept models whose manager is written by a call anywhere in this source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            link = node.func.value
            while isinstance(link, ast.Call | ast.Attribute):
                if isinstance(link, ast.Attribute) and link.attr == "objects" and isinstance(link.value, ast.Name):
                    if link.value.id in KEPT:
                        yield link.value.id
                    break
                link = link.func if isinstance(link, ast.Call) else link.value


def test_no_module_but_the_lifecycles_writes_a_case_or_a_repair():
    found = {name: set(written(text)) - WRITERS.get(name, set()) for name, text in sources()}
    assert {name: models for name, models in found.items() if models} == {}
    assert set(written((ROOT / "healthboard/repairs/lifecycle.py").read_text())) == {"Repair", "Step", "Call"}


def test_no_module_but_the_lifecycles_assigns_a_state():
    allowed = {"healthboard/cases/lifecycle.py", "healthboard/repairs/lifecycle.py"}
    found = {name: OTHER_FORMS.search(text).group(0) for name, text in sources()
             if name not in allowed and not name.startswith(("healthboard/sandbox", "healthboard/seed")) and OTHER_FORMS.search(text)}  # fmt: skip
    assert found == {}


@pytest.mark.parametrize("table", [case_states, repair_states])
def test_the_table_is_whole(table):
    assert set(table.MOVES) == set(table.State)
    closed = set(table.State) - set(table.OPEN)
    assert all(not table.MOVES[state] for state in closed)
    reachable, todo = set(), [table.State(next(iter(table.State)))]
    while todo:
        state = todo.pop()
        if state not in reachable:
            reachable.add(state)
            todo += table.MOVES[state]
    assert reachable == set(table.State), "every state can be reached"
    assert all(any(end in _after(table, state) for end in closed) for state in table.OPEN), "every state can end"


def _after(table, state):
    seen, todo = set(), [state]
    while todo:
        for to in table.MOVES[todo.pop()]:
            if to not in seen:
                seen.add(to)
                todo.append(to)
    return seen


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.sampled_from(list(case_states.State)), max_size=8))
def test_a_case_moves_only_along_its_table(db, moves):
    case = factories.case(factories.instance(scene.solo()))
    for to in moves:
        before = case.state
        legal = to in case_states.MOVES[case_states.State(before)]
        try:
            cases.move(case, to, WORKER, "walk")
            assert legal
        except cases.IllegalMove:
            assert not legal
        case.refresh_from_db()
        assert case.state == (to if legal else before)
    case.instance.cases.all().delete()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.sampled_from(list(repair_states.State)), max_size=8))
def test_a_repair_moves_only_along_its_table(db, moves):
    on = factories.instance(scene.solo())
    now = factories.ago(0)
    row = repairs.open_repair(instance=on, action="REBOOT", actor=WORKER, values={}, not_before=now)
    for to in moves:
        before = row.state
        legal = to in repair_states.MOVES[repair_states.State(before)]
        try:
            repairs._move(row, to, actor=WORKER, why="walk")
            assert legal
        except repairs.IllegalMove:
            assert not legal
        row.refresh_from_db()
        assert row.state == (to if legal else before)
    moved = AuditRow.objects.filter(repair_id=row.pk).exclude(payload__before=None)
    assert all(r.payload["after"] in repair_states.MOVES[r.payload["before"]] for r in moved)
    Repair.objects.filter(pk=row.pk).delete()

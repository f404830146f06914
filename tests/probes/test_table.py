"""docs/aws-assumptions.md: each row names tests that exist, and its probe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from healthboard.probes.tries import NEEDS, PROBES, chosen

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    for line in (ROOT / "docs/aws-assumptions.md").read_text().splitlines()
    if re.match(r"\| A\d+ \|", line)
]


def test_table_and_probes_are_of_the_same_assumptions():
    assert [row[0] for row in ROWS] == [f"A{n}" for n in range(1, len(ROWS) + 1)]
    assert {row[0] for row in ROWS} == set(PROBES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_assumption_names_its_tests_and_its_probe(row):
    name, assumption, otherwise, tests, probe = row
    assert assumption and otherwise
    assert probe.startswith(f"`{PROBES[name].__name__}`")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert named and len(named) == tests.count("`") // 2, "every test by its name"
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(), (path, test)


def test_what_is_named_comes_with_what_prepares_it_and_in_order():
    order = list(PROBES)
    assert chosen([]) == order
    assert chosen(["A10"]) == ["A9", "A10"] and chosen(["A4", "A6"]) == ["A6", "A1", "A4"]
    assert all(order.index(before) < order.index(name) for name, before in NEEDS.items())

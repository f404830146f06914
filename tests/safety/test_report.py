"""What the report says of the load is reckoned from what was measured."""

from __future__ import annotations

import pytest

from tests.load import Step
from tests.safety import report


def told() -> dict:
    flat = {"memory_mib": [400, 410, 411], "backlog": [0, 3, 2], "unread": [0, 5, 4]}
    cpu = {"web_cpu_ms": 4.0, "database_cpu_ms": 1.0, "workers_cpu_ms": 0.5}
    steps = [
        Step(2000, 600, 80000, p50_ms=5.0, p99_ms=21.0, per_second=133.3, **cpu, **flat),
        Step(2500, 60, 10000, p50_ms=5.0, p99_ms=20.0, per_second=166.7, **flat),
        Step(3000, 60, 12000, p50_ms=6.0, p99_ms=30.0, per_second=200.0, **flat),
        Step(4000, 60, 16000, p50_ms=7.0, p99_ms=40.0, per_second=266.7, **flat),
    ]
    return {"cores": 2, "steps": [vars(step) for step in steps]}


def test_it_names_p99_the_processor_time_of_a_report_and_the_cores_of_the_design():
    text = "\n".join(report.load(told()))
    assert "Held for 10 minutes: 2,000 nodes, p99 21.0 ms, 5.50 ms of processor time per report." in text
    assert "10,000 nodes (667 reports a second) take 3.7 cores" in text
    assert text.count("\n| ") == 1 + 4, "a head, and a line for each step"


@pytest.mark.parametrize(
    ("what", "nodes"),
    [
        ({}, "4,000"),
        ({"failed": 1}, "3,000"),
        ({"p99_ms": 15_000.0}, "3,000"),
        ({"backlog": [0, 100, 141]}, "3,000"),
        ({"unread": [0, 100, 141]}, "3,000"),
        ({"memory_mib": [400, 400, 421]}, "3,000"),
    ],
)
def test_the_highest_rate_is_one_at_which_nothing_failed_and_nothing_piled_up(what, nodes):
    assert f"nothing piled up: {nodes} nodes" in "\n".join(report.load(_with(what)))


def _with(what: dict) -> dict:
    value = told()
    value["steps"][3].update(what)
    return value


def test_without_a_measurement_it_says_so():
    assert "Not run: `make load`." in report.load(None)

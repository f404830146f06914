"""A seeded sample of the safety trials, in under six minutes on two cores: `make safety-seeded`."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.safety.plan import MAIN, ROWS
from tests.safety.run import Slot

#: trials of each row
SAMPLE = {
    "T1": 20, "T3": 6, "T4": 4, "T5 restart": 3, "T6": 1, "T8": 4, "T11": 2, "T12": 2, "T13": 6, "T14": 10, "T22": 6,
}  # fmt: skip
SEED = os.environ.get("SAFETY_SEEDED", "1")


@pytest.fixture(scope="module")
def slots() -> Iterator[list[Slot]]:
    root = Path(tempfile.mkdtemp(prefix="healthboard-safety-"))
    root.chmod(0o755)
    made = [Slot(root / f"slot{number}") for number in range(2)]
    yield made
    for slot in made:
        slot.stop()
    shutil.rmtree(root, ignore_errors=True)


def side_by_side(slots, specs):
    """Results of `specs`; each slot takes the next one as soon as it is free."""
    todo: queue.SimpleQueue = queue.SimpleQueue()
    for spec in specs:
        todo.put(spec)

    def serve(slot):
        results = []
        with contextlib.suppress(queue.Empty):
            while True:
                spec = todo.get_nowait()
                result = slot.run(spec)
                if result.get("failed"):  # it says nothing: repeated once, as `make safety` does
                    result = slot.run(spec)
                results.append(result)
        return results

    with ThreadPoolExecutor(len(slots)) as pool:
        return [result for part in pool.map(serve, slots) for result in part]


@pytest.fixture(scope="module")
def classes(slots):
    """The fault points of the main flows, recorded now: undisturbed, each ends as it should."""
    results = side_by_side(slots, [{"row": "points", "flow": flow} for flow in MAIN])
    assert [r for r in results if r.get("failed") or r["broken"]] == []
    return {r["spec"]["flow"]: r["classes"] for r in results}


@pytest.mark.parametrize("row", SAMPLE)
def test_a_seeded_sample_does_no_harm(slots, classes, row):
    specs = list(ROWS[row].specs(classes))
    results = side_by_side(slots, random.Random(f"{row}/{SEED}").sample(specs, SAMPLE[row]))
    assert [r for r in results if r.get("failed") or r["broken"]] == []
    counted = [r for r in results if r["reached"] >= ROWS[row].least]
    assert len(counted) >= SAMPLE[row] * 0.8, "most trials must have done their harm"

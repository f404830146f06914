"""The recorded samples, read as the command line reads them."""

import re
from pathlib import Path

from tests.diagnosis.score import by_kind, samples, share, table

READ = {kind: score for kind, score in by_kind().items() if kind != "incident"}


def _all(name: str) -> list[bool]:
    return [value for score in READ.values() for value in getattr(score, name)]


def test_the_table_by_kind_is_printed(capsys):
    with capsys.disabled():
        print("\n" + table())
    assert READ


def test_verdicts_without_doubt_are_right():
    assert share(_all("sure")) >= 0.97


def test_verdicts_with_doubt_are_among_the_possible_ones():
    assert share(_all("doubted")) >= 0.85


def test_codes_are_exactly_right():
    assert share(_all("codes")) >= 0.97


def test_actions_of_clear_and_ambiguous_failures_are_right():
    assert share(_all("actions")) >= 0.90


def test_no_healthy_machine_is_called_broken():
    assert [bad for score in by_kind().values() for bad in score.dangerous] == []


def test_the_lists_alone_do_worse():
    lines = [line for line in table().splitlines() if line.startswith("act or not")]
    ecs, eks, ours = (int(re.search(r"(\d+)/", line)[1]) for line in lines)
    assert ours > max(ecs, eks)


def test_the_rules_are_general():
    """No identifier of a sample, no host name and no rare address stands in the code."""
    code = "\n".join(p.read_text() for p in Path("healthboard/diagnosis").rglob("*.py"))
    for sample in samples():
        rare = re.findall(
            r"GPU-[0-9a-f]{8}|\bi-[0-9a-f]{17}|ip-10-0-\d+-\d+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\b", sample["text"]
        )
        for word in {sample["id"], *rare} - {"0000:3b:00"}:
            assert word not in code, f"{word} of {sample['id']} stands in the code"

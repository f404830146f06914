"""docs/security/asvs.md: each requirement of levels 1 and 2 once, tests that exist, counts that are right."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache

from healthboard.config import ROOT

DOCUMENT = ROOT / "docs" / "security" / "asvs.md"
#: ASVS 5.0.0: section -> the level of each of its requirements, in order
LEVELS = {
    "1.1": "22", "1.2": "1111122223", "1.3": "112222222223", "1.4": "222", "1.5": "123",
    "2.1": "122", "2.2": "112", "2.3": "12223", "2.4": "23",
    "3.1": "3", "3.2": "113", "3.3": "12223", "3.4": "11222233", "3.5": "11122333", "3.6": "3", "3.7": "22333",
    "4.1": "12233", "4.2": "23333", "4.3": "22", "4.4": "1222",
    "5.1": "2", "5.2": "112333", "5.3": "113", "5.4": "222",
    "6.1": "122", "6.2": "111111112222", "6.3": "11223333", "6.4": "112233", "6.5": "22222333", "6.6": "2223",
    "6.7": "33", "6.8": "2222",
    "7.1": "222", "7.2": "1111", "7.3": "22", "7.4": "11222", "7.5": "223", "7.6": "22",
    "8.1": "1233", "8.2": "1123", "8.3": "133", "8.4": "23",
    "9.1": "111", "9.2": "1222",
    "10.1": "22", "10.2": "223", "10.3": "22223", "10.4": "1111122222233333", "10.5": "22222", "10.6": "22",
    "10.7": "222",
    "11.1": "2233", "11.2": "22233", "11.3": "11233", "11.4": "1222", "11.5": "23", "11.6": "23", "11.7": "33",
    "12.1": "12233", "12.2": "11", "12.3": "22223",
    "13.1": "2333", "13.2": "222223", "13.3": "2233", "13.4": "1222233",
    "14.1": "22", "14.2": "12223333", "14.3": "122",
    "15.1": "12233", "15.2": "12233", "15.3": "1222222", "15.4": "3333",
    "16.1": "2", "16.2": "22222", "16.3": "2222", "16.4": "222", "16.5": "2223",
    "17.1": "23", "17.2": "22223333", "17.3": "22",
}  # fmt: skip
#: of level 3, what this project holds itself to as well
MORE = {"1.2.10", "2.3.5", "4.1.5", "7.5.3", "15.4.2"}
STATUSES = ("met", "not applicable", "not met")
ROW = re.compile(r"\| (\d+\.\d+\.\d+) \| ([123]) \| ([^|]+) \| ([a-z ]+) \| ([^|]+) \|")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def levels() -> dict[str, str]:
    return {f"{part}.{n}": level for part, of_part in LEVELS.items() for n, level in enumerate(of_part, 1)}


def rows() -> list[tuple[str, str, str, str, str]]:
    lines = [line for line in DOCUMENT.read_text().splitlines() if re.match(r"\| \d+\.\d+\.\d+", line)]
    found = [ROW.fullmatch(line) for line in lines]
    assert None not in found, [line for line, match in zip(lines, found, strict=True) if match is None]
    return [match.groups() for match in found]


@cache
def functions(name: str) -> set[str]:
    tree = ast.parse((ROOT / name).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_standard_is_counted_as_it_counts_itself():
    assert Counter(levels().values()) == {"1": 70, "2": 183, "3": 92}


def test_each_requirement_stands_there_once_with_its_level():
    wanted = levels()
    must = {number for number, level in wanted.items() if level in "12"} | MORE
    found = [number for number, *_ in rows()]
    assert sorted(found, key=key) == sorted(must, key=key) and len(found) == len(set(found))
    assert {number: level for number, level, *_ in rows()} == {number: wanted[number] for number in must}
    assert found == sorted(found, key=key), "in order"


def key(number: str) -> list[int]:
    return [int(part) for part in number.split(".")]


def test_the_tests_that_are_named_exist():
    named = {pair for row in rows() for pair in TEST.findall(row[4])}
    missing = [f"{name}::{test}" for name, test in sorted(named) if test not in functions(name)]
    assert missing == [] and len(named) > 120
    text = DOCUMENT.read_text()
    without = set(re.findall(r"`tests/[^`]*\.py[^`]*`", text)) - {f"`{name}::{test}`" for name, test in named}
    assert without == {"`tests/contracts/test_asvs.py`"}, "a test is named by its file and its name"


def test_what_is_met_says_how_and_what_is_not_says_what_it_would_take():
    for number, _, words, status, how in rows():
        assert status in STATUSES and words.strip(), number
        if status == "not met":
            assert "Needed:" in how or "as 12.3.1" in how, number
        elif status == "met":
            shown = TEST.search(how) or re.search(r"\]\(|`[\w./]+`|there (is|are) no|`make lint`", how)
            assert shown or "proxy" in how or "Python" in how, number


def test_the_counts_at_its_head_are_right():
    text = DOCUMENT.read_text()
    told = dict(re.findall(r"^\| (met|not applicable|not met) \| (\d+) \|$", text, re.MULTILINE))
    counted = Counter(status for number, _, _, status, _ in rows() if number not in MORE)
    assert {status: int(number) for status, number in told.items()} == dict(counted)
    listed = re.search(r"\*\*Not met\*\*: ([\d., ]+);", text)[1].split(", ")
    assert listed == [number for number, _, _, status, _ in rows() if status == "not met"]

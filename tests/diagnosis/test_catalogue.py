"""The catalogue both ways, and the exact set of codes that may act alone."""

import csv
import re
from pathlib import Path

import pytest

from healthboard.diagnosis import catalogue, nvml
from healthboard.diagnosis.rules import aws
from healthboard.diagnosis.signals import Action, Verdict
from tests.diagnosis.build import GPU, assess, fine, kernel, reading

HERE = Path(catalogue.__file__).parent
ROWS = list(csv.DictReader((HERE / "xid_catalogue.csv").open()))
RULINGS = list(csv.DictReader((HERE / "rulings.csv").open()))

#: Numbers that, seen once in the kernel log with NVML agreeing, are repaired without a person.
ACT_ALONE = {46: "REBOOT", 48: "REBOOT", 62: "REBOOT", 79: "REPLACE", 95: "REBOOT", 110: "REBOOT", 140: "REBOOT",
             143: "REBOOT", 158: "REBOOT"}  # fmt: skip


def test_every_number_of_the_catalogue_is_mapped():
    for row in ROWS:
        entry = catalogue.get(f"XID_{row['xid']}")
        assert entry.known and entry.title and entry.why and entry.vendors["nvidia"]


def test_every_ruling_is_of_a_known_number_or_a_code_without_one():
    numbers = {f"XID_{row['xid']}" for row in ROWS}
    for row in RULINGS:
        assert Verdict(row["verdict"]) and Action(row["action"]) and row["why"]
        assert row["code"] in numbers or (not row["code"].startswith("XID_") and row["title"])
    assert len({row["code"] for row in RULINGS}) == len(RULINGS)


def test_every_code_that_the_rules_name_is_in_the_catalogue():
    """Codes that a parser or rule gives to an event or a claim, by what stands around them."""
    code = "\n".join(p.read_text() for p in HERE.rglob("*.py") if p.name != "prose.py")
    given = set(re.findall(r'(?:claims\.add|claims\.of|_emit|Event\(\w+,)\(?\s*"([A-Z][A-Z0-9_]+)"', code))
    given |= set(
        re.findall(r'^\s*\(?\s*"([A-Z][A-Z0-9]+_[A-Z0-9_]+)",\s*(?:r|rf|re\.compile\(r?)"', code, re.MULTILINE)
    )
    given |= set(nvml.CODES.values()) | set(nvml.STATES.values()) | set(aws._IMPAIRED.values())
    assert len(given) > 40
    assert {c for c in given if c not in catalogue.load()} == set()


def test_each_default_agrees_with_the_catalogue_or_has_a_ruling():
    ruled = {row["code"] for row in RULINGS}
    for row in ROWS:
        entry = catalogue.get(f"XID_{row['xid']}")
        unused = row["meaning"].startswith("no use documented") and row["nvidia_immediate"] == "CONTACT_SUPPORT"
        if f"XID_{row['xid']}" not in ruled and not unused:
            assert (entry.verdict, entry.action) == (row["default_verdict"], row["default_action"])


def test_the_set_that_may_act_alone_is_exactly_this():
    """One kernel line of the number, and NVML that names a step for the GPU at the same time."""
    found = {}
    for row in ROWS:
        number = int(row["xid"])
        for status in ("reset_required", "lost"):
            says = reading("GPU_STATUS", status, gpu=GPU, since=5, seen=1)
            got = assess([kernel(f"XID_{number}")], [*fine(), says])
            if got.may_act and got.primary.code == f"XID_{number}":
                found[number] = str(got.primary.action)
    assert found == ACT_ALONE


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 64, 74, 94, 109, 119, 120, 149, 154, 175, 999])
def test_no_other_number_acts_alone_whatever_is_repeated(number):
    lines = [kernel(f"XID_{number}", 10 + n, seq=n) for n in range(50)]
    assert not assess(lines).may_act


def test_the_version_names_the_files():
    assert re.fullmatch(r"[0-9a-f]{12}", catalogue.version())
    assert assess().catalogue_version == catalogue.version()


def test_vendors_stand_side_by_side():
    said = dict(catalogue.who_says("XID_119"))
    assert said["nvidia"].startswith("RESET_GPU") and said["ecs"] == "does not act" and "repairs" in said["eks"]
    assert catalogue.who_says("EC2_SYSTEM_IMPAIRED")[-1][0] == "healthboard"

"""A thing that is denied, named or quoted is not said."""

import re

import pytest

from healthboard.diagnosis import dcgm, wording
from healthboard.diagnosis.signals import Context, Verdict
from tests.diagnosis.build import assess, kernel

FAILED = re.compile("row remapping failure|GPU is lost|double-bit ECC error", re.IGNORECASE)


@pytest.mark.parametrize(
    "line",
    [
        "row remapping failure: No", "Row remapping failure | 0 |", "row remapping failure flag is not set", "no row remapping failure",
        "0 double-bit ECC errors", "without any double-bit ECC error", "zero volatile double-bit ECC errors",
    ],
)  # fmt: skip
def test_what_a_line_denies(line):
    assert not wording.says(FAILED, line)


@pytest.mark.parametrize(
    "line",
    [
        "row remapping failure", "GPU 0 row remapping failure", "row remapping failure: Yes", "GPU is lost: No such device",
        "GPU 0: double-bit ECC error", "2 double-bit ECC errors", "no driver answers, GPU is lost", "row remapping failure on GPU 0",
        "no row remapping failure on GPU 1; row remapping failure on GPU 2",
    ],
)  # fmt: skip
def test_what_a_line_says(line):
    assert wording.says(FAILED, line)


@pytest.mark.parametrize("architecture", ["volta", "turing"])
def test_a_number_without_a_use_since_ampere_is_watched_on_older_boards_and_asked_about_on_others(architecture):
    old = assess([kernel("XID_9")], context=Context(instance="i-1", architecture=architecture))
    new = assess([kernel("XID_9")], context=Context(instance="i-1", architecture="ampere"))
    assert (old.verdict, new.verdict) == (Verdict.WATCH, Verdict.AMBIGUOUS)


def test_each_board_slows_down_at_its_own_margin():
    def read(model, margin):
        row = f'DCGM_FI_DEV_GPU_TEMP_LIMIT{{UUID="GPU-11111111-2222-4333-8444-555555555555",modelName="{model}"}} {margin}'
        return {r.value for r in dcgm.parse(row).readings if r.name == "TEMPERATURE"}

    assert read("NVIDIA H100 80GB HBM3", -2) == read("NVIDIA B200", -3) == {"high"}
    assert read("NVIDIA B200", -2) == {"ok"}

"""What only follows from another error: of its time it accompanies it, long before or after it stands alone."""

from datetime import timedelta

import pytest

from healthboard.diagnosis import catalogue
from healthboard.diagnosis.fault_classes import CLASSES, fault_class
from tests.diagnosis.build import assess, kernel

_HOURS, _SECONDS = timedelta(hours=3), timedelta(seconds=60)
OTHER = "GPU-00000000-0000-4000-8000-000000000005"


def role(got, code):
    return next(f.role for f in got.findings if f.code == code)


@pytest.mark.parametrize("gpu", [None, OTHER])
@pytest.mark.parametrize("seconds, wanted", [(340, "companion"), (10, "companion"), (601, "own"), (7_000, "own")])
def test_a_clean_up_accompanies_the_error_of_its_time(seconds, wanted, gpu):
    """The 119 is of five minutes ago; on which GPU the channels went does not matter."""
    events = [kernel("XID_119", 300), kernel("XID_45", seconds, seq=2, **({"gpu": gpu} if gpu else {}))]
    got = assess(events, shown_for=_HOURS)
    assert role(got, "XID_45") == wanted
    assert (got.verdict, got.primary.code) == ("AMBIGUOUS", "XID_119")


def test_the_bound_is_what_the_policy_says():
    events = [kernel("XID_119", 300), kernel("XID_45", 10, seq=2)]
    assert role(assess(events), "XID_45") == "companion"
    assert role(assess(events, xid45_hold=_SECONDS), "XID_45") == "own"


def test_a_clean_up_that_names_its_cause_follows_it_however_long_it_took():
    cause = kernel("XID_48", 3_000, seq=1)
    got = assess([cause, kernel("XID_45", 10, seq=2, caused_by=48)])
    assert role(got, "XID_45") == "companion" and got.primary.code == "XID_48"


def test_alone_it_is_what_a_stopped_job_leaves():
    got = assess([kernel("XID_45", 10)])
    assert (got.verdict, role(got, "XID_45")) == ("HEALTHY", "own")


def test_each_code_of_a_class_of_faults_is_known_and_in_one_class_only():
    codes = [code for codes in CLASSES.values() for code in codes]
    assert len(codes) == len(set(codes))
    assert [code for code in codes if code not in catalogue.load()] == []
    assert fault_class("XID_95") == fault_class("ROW_REMAP_FAILURE") == "GPU memory"
    assert fault_class("XID_62") == "XID_62"

"""What takes a fault back: a bad reading that reached it and is good since. One that had ended before says nothing of it."""

from __future__ import annotations

import pytest

from healthboard.diagnosis.signals import Verdict
from tests.diagnosis.build import GPU, assess, fine, kernel, reading

#: code of an event, name of a reading, its bad value
TAKEN_BACK = pytest.mark.parametrize(
    ("code", "name", "bad", "good"),
    [
        ("XID_95", "RECOVERY_ACTION", 1, 0),
        ("XID_95", "GPU_STATUS", "reset_required", "ok"),
        ("XID_79", "GPU_STATUS", "lost", "ok"),
    ],
)
GONE = "XID_79"


def _assess(code, name, bad, good, *, bad_last):
    """A fault 100 s ago; a bad reading from 400 s ago to `bad_last`, nothing for a while, and a good one for 30 s."""
    was = reading(name, bad, gpu=GPU, since=400, last=bad_last, seen=9)
    now = reading(name, good, gpu=GPU, since=30, seen=3)
    return assess([kernel(code, 100)], [*fine(), was, now])


@TAKEN_BACK
def test_a_recovery_before_the_fault_does_not_take_it_back(code, name, bad, good):
    """It was bad until five minutes ago and good again; the fault came; its good reading was only interrupted since."""
    got = _assess(code, name, bad, good, bad_last=300)
    alone = assess([kernel(code, 100)], [*fine(), reading(name, good, gpu=GPU, since=30, seen=3)])
    assert (got.verdict, got.action, got.codes) == (alone.verdict, alone.action, alone.codes)
    assert got.verdict not in (Verdict.HEALTHY, Verdict.WATCH)


@TAKEN_BACK
def test_a_recovery_from_it_does(code, name, bad, good):
    got = _assess(code, name, bad, good, bad_last=60)
    assert got.verdict is (Verdict.WATCH if code == GONE else Verdict.HEALTHY) and not got.may_act


@TAKEN_BACK
def test_nor_does_it_forbid_to_act_where_a_second_witness_says_the_same(code, name, bad, good):
    """The word of before the fault is no newer word against it."""
    told = kernel(code, 100)
    seen = reading("XID_LAST", int(code[4:]), "dcgm", gpu=GPU, since=95, seen=5)
    was = reading(name, bad, gpu=GPU, since=400, last=300, seen=9)
    now = reading(name, good, gpu=GPU, since=30, seen=3)
    with_it, without = (assess([told], [*fine(), seen, *rows]) for rows in ((was, now), (now,)))
    assert (with_it.may_act, with_it.may_act_why) == (without.may_act, without.may_act_why)

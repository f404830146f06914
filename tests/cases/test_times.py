"""A case's times: which hands it was in, and how long people were waited for, apart from what machines took."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from healthboard.cases import times

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def _case(mode="ask", state="CLOSED", closed=60.0, first=-2.0, by_hand=False):
    kept = {"findings": [{"code": "XID_79", "first": at(first).isoformat()}, {"code": "XID_45", "first": at(-30).isoformat()}]}  # fmt: skip

    class Kept:
        def order_by(self, _):
            return self

        def values_list(self, *_, **__):
            return self

        def first(self):
            return kept

    return SimpleNamespace(
        pk=1, mode=mode, state=state, opened_at=at(0), closed_at=None if closed is None else at(closed),
        code="XID_79", by_hand=by_hand, evidence=Kept(),
    )  # fmt: skip


def _rows(*told, case=1, repair=None):
    """(minute, verb, state before), with growing ids."""
    return [
        SimpleNamespace(pk=round(minute * 1000), at=at(minute), verb=verb, payload={"before": before} if before else None,
                        case_id=case, repair_id=repair)
        for minute, verb, before in told
    ]  # fmt: skip


def _decision(kind, minute, undone=None):
    return SimpleNamespace(kind=kind, at=at(minute), undone_at=undone)


def _repair(state="SUCCEEDED", closed=58.0, steps=()):
    rows = [
        SimpleNamespace(name=name, state=how, ended_at=None if end is None else at(end)) for name, how, end in steps
    ]
    return SimpleNamespace(pk=7, state=state, closed_at=at(closed), steps=SimpleNamespace(all=lambda: rows))


ALL = (("drain", "DONE", 22), ("tasks", "DONE", 30), ("replacement", "DONE", 28), ("verify", "DONE", 57))


def test_a_person_was_waited_for_twice_and_machines_took_the_rest():
    rows = _rows((0, "case.opened", None), (20, "case.decided", "WAITING"), (60, "case.closed", "DECIDED"))
    rows += _rows((20.1, "repair.scheduled", None), (21, "repair.running", "SCHEDULED"), (40, "repair.asking", "RUNNING"),
                  (45, "repair.waiting", None), (50, "repair.running", "ASKING"), (58, "repair.succeeded", "RUNNING"),
                  case=None, repair=7)  # fmt: skip
    found = times.of(_case(), [_decision("approve", 20)], [_repair(steps=ALL)], rows)
    assert (found.first_sign, found.detected, found.decided) == (at(-2), at(0), at(20))
    assert (found.drained, found.replaced, found.verified, found.closed) == (at(30), at(28), at(57), at(60))
    assert [(w.since, w.until) for w in found.waits] == [(at(0), at(20)), (at(40), at(50))]
    assert found.human_s == 30 * 60
    assert found.machine_s == (62 - 30) * 60


def test_what_the_policy_ended_was_no_wait_for_a_person():
    rows = _rows((0, "case.opened", None), (1, "case.decided", "WAITING"), (30, "case.closed", "DECIDED"))
    found = times.of(_case(mode="auto", closed=30), [_decision("auto", 1)], [], rows)
    assert found.waits == () and found.human_s == 0 and found.machine_s == 32 * 60
    assert found.decided == at(1)


@pytest.mark.parametrize("purged", [False, True])
def test_put_off_and_held_count_as_peoples_time_and_an_open_wait_goes_on(purged):
    rows = _rows((0, "case.opened", None), (5, "case.snoozed", "WAITING"), (25, "case.waiting", "SNOOZED"),
                 (30, "case.held", "WAITING"), (50, "case.observed", "HELD"))  # fmt: skip
    if purged:
        for row in rows:
            row.payload = None
    found = times.of(_case(closed=60), [], [], rows)
    assert found.human_s == 50 * 60
    assert found.decided is None is found.verified


def test_a_decision_that_was_taken_back_is_not_when_it_was_decided():
    found = times.of(_case(), [_decision("approve", 3, undone=at(4)), _decision("override", 9)], [], [])
    assert found.decided == at(9)


def test_a_repair_that_failed_verified_nothing():
    steps = (("drain", "DONE", 22), ("tasks", "SKIPPED", 23), ("replacement", "FAILED", 40))
    found = times.of(_case(), [], [_repair(state="FAILED", steps=steps)], [])
    assert (found.drained, found.replaced, found.verified) == (at(22), None, None)


def test_what_a_person_asked_for_has_no_first_sign():
    found = times.of(_case(by_hand=True), [], [], [])
    assert found.first_sign is None and found.begun == at(0)


def test_waits_that_overlap_are_counted_once():
    assert times._covered([(at(0), at(10)), (at(5), at(12)), (at(20), at(21))]) == 13 * 60

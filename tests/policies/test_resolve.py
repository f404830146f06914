from datetime import timedelta

import pytest
from hypothesis import given

from healthboard.policies import fields
from healthboard.policies.resolve import resolve, span, thresholds
from tests.policies import draw


def values(**changed):
    return {**fields.defaults(), **changed}


def test_a_clear_failure_with_a_second_witness_is_repaired_alone():
    found = resolve("HARDWARE", ["XID_79"], "REPLACE", True, values(), {"mode_hardware": "Fleet default"})
    assert (found.mode, found.action) == ("auto", "REPLACE")
    assert found.why == "clear hardware failures are set to auto by Fleet default"


def test_without_a_second_witness_a_person_is_asked():
    found = resolve("HARDWARE", ["XID_79"], "REPLACE", False, values())
    assert found.mode == "ask" and "second witness" in found.why


def test_an_exception_cannot_lift_the_need_for_a_witness():
    found = resolve("HARDWARE", ["XID_79"], "REPLACE", False, values(codes={"XID_79": {"mode": "auto"}}))
    assert found.mode == "ask"


def test_many_at_once_are_held_whatever_the_policy_says():
    found = resolve("CORRELATED", ["XID_79"], "REPLACE", True, values(codes={"XID_79": {"mode": "auto"}}))
    assert (found.mode, found.action) == ("ask", "HOLD")


@pytest.mark.parametrize("verdict", ["HEALTHY", "WORKLOAD", "WATCH", "UNKNOWN"])
def test_nothing_is_repaired_on_a_lesser_verdict(verdict):
    codes = {"XID_13": {"mode": "auto", "action": "REPLACE"}}
    assert resolve(verdict, ["XID_13"], "NONE", True, values(codes=codes)).mode == "observe"


def test_the_decisive_codes_exception_comes_first():
    codes = {"XID_119": {"mode": "auto", "action": "REBOOT"}, "XID_45": {"mode": "observe"}}
    found = resolve("AMBIGUOUS", ["XID_119", "XID_45"], "DIAGNOSE", False, values(codes=codes))
    assert (found.mode, found.action) == ("auto", "REBOOT")


def test_otherwise_the_most_careful_of_the_other_codes_holds():
    codes = {"XID_45": {"mode": "observe"}, "XID_94": {"mode": "auto", "action": "REBOOT"}}
    found = resolve("HARDWARE", ["XID_79", "XID_45", "XID_94"], "REPLACE", True, values(codes=codes))
    assert (found.mode, found.action) == ("observe", "REBOOT")


def test_an_exception_that_lets_nothing_be_done_is_observed():
    found = resolve("HARDWARE", ["XID_79"], "REPLACE", True, values(codes={"XID_79": {"action": "WATCH"}}))
    assert (found.mode, found.action) == ("observe", "WATCH")


@given(draw.policies(), draw.questions)
def test_nothing_ever_acts_alone_without_a_witness_or_on_a_lesser_verdict(policies, question):
    from healthboard.policies.matching import Target, combine

    verdict, codes, action, may_act = question
    found = resolve(verdict, codes, action, may_act, combine(policies, [Target()]).values)
    if found.mode == "auto":
        assert verdict == "AMBIGUOUS" or (verdict == "HARDWARE" and may_act)


def test_what_only_a_policy_makes_a_finding_of_never_acts_alone():
    found = values(mode_ambiguous="auto", codes={"XID_13": {"verdict": "AMBIGUOUS", "action": "REPLACE"}})
    assert resolve("AMBIGUOUS", ["XID_119"], "REBOOT", False, found).mode == "auto"
    for codes in (["XID_13"], ["XID_119", "XID_13"]):
        answer = resolve("AMBIGUOUS", codes, "REPLACE", False, found, raised=True)
        assert answer.mode == "ask" and "only a policy makes a finding of it" in answer.why


def test_policy_times_run_at_the_sandboxs_speed_but_undo_and_expiry_do_not(settings):
    settings.SPEED = 10
    assert thresholds(values()).agent_disconnect == timedelta(seconds=30)
    assert span(values(), "drain_timeout_s") == timedelta(minutes=3)
    assert span(values(), "undo_s") == timedelta(seconds=30)
    assert span(values(), "expiry_s") == timedelta(hours=4)


def test_exceptions_that_change_the_reading_go_to_the_evaluator():
    codes = {
        "XID_119": {"mode": "ask", "count": 3, "window_s": 3600},
        "XID_63": {"verdict": "AMBIGUOUS", "action": "REBOOT"},
        "XID_79": {"mode": "ask", "action": "REPLACE"},
        "ROW_WEARS": {"mode": "ask", "of": ["XID_63"], "count": 2, "window_s": 60, "action": "REBOOT"},
    }
    assert thresholds(values(codes=codes)).code_overrides == {
        "XID_119": {"count": 3, "window_s": 3600},
        "XID_63": {"verdict": "AMBIGUOUS", "action": "REBOOT"},
        "ROW_WEARS": {"of": ["XID_63"], "count": 2, "window_s": 60, "action": "REBOOT"},
    }

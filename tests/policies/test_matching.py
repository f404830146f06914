from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthboard.policies.fields import BY_NAME, MODES
from healthboard.policies.matching import DEFAULTS, Snapshot, Target, combine
from healthboard.policies.resolve import resolve
from healthboard.policies.windows import closed
from tests.policies import draw

HERE = Target("111122223333", "us-east-1", "gpu", "train", "llm", {"team": "x"})
IDLE = Target("111122223333", "us-east-1", "gpu", "train")


def snap(name, settings, **match):
    return Snapshot(name, match, settings)


def test_without_any_policy_the_built_in_defaults_hold():
    found = combine([], [HERE])
    assert found.values["mode_hardware"] == "auto" and found.values["mode_ambiguous"] == "ask"
    assert set(found.values) == set(BY_NAME) and set(found.origin.values()) == {DEFAULTS}


def test_the_specific_overrides_the_general_setting_by_setting():
    policies = [
        Snapshot("Default", {}, {"mode_hardware": "observe", "tries_24h": 1}, default=True),
        snap("pool", {"mode_hardware": "ask", "undo_s": 60}, pool="train"),
        snap("service", {"mode_hardware": "auto"}, workload="llm"),
    ]
    found = combine(policies, [HERE])
    assert (found.values["mode_hardware"], found.origin["mode_hardware"]) == ("auto", "service")
    assert (found.values["undo_s"], found.origin["undo_s"]) == (60, "pool")
    assert (found.values["tries_24h"], found.origin["tries_24h"]) == (1, "Default")


def test_a_policy_of_another_place_says_nothing():
    policies = [
        snap("other pool", {"mode_hardware": "observe"}, pool="infer"),
        snap("other account", {"mode_hardware": "observe"}, account="999988887777"),
        snap("other tag", {"mode_hardware": "observe"}, tags={"team": "y"}),
    ]
    assert combine(policies, [HERE]).values["mode_hardware"] == "auto"


def test_a_tag_without_a_value_only_has_to_be_there():
    policy = snap("tagged", {"mode_hardware": "ask"}, tags={"team": ""})
    assert combine([policy], [HERE]).values["mode_hardware"] == "ask"
    assert combine([policy], [IDLE]).values["mode_hardware"] == "auto"


def test_an_idle_instance_gets_its_pools_policy_and_no_workloads():
    policies = [snap("pool", {"undo_s": 60}, pool="train"), snap("service", {"undo_s": 90}, workload="llm")]
    assert combine(policies, [IDLE]).values["undo_s"] == 60


def test_several_workloads_get_the_most_careful_value_of_each_setting():
    policies = [
        snap("a", {"mode_hardware": "auto", "drain_timeout_s": 7200, "budget_absolute": 3}, workload="a"),
        snap("b", {"mode_hardware": "ask", "drain_timeout_s": 60, "dead_host": "auto"}, workload="b"),
    ]
    both = [Target(workload="a"), Target(workload="b")]
    found = combine(policies, both)
    assert found.values["mode_hardware"] == "ask" and found.origin["mode_hardware"] == "b"
    assert found.values["drain_timeout_s"] == 7200
    assert found.values["budget_absolute"] == 3
    assert found.values["dead_host"] == "ask"


def test_where_no_order_is_declared_nothing_is_done_alone():
    policies = [
        snap("a", {"approver_group": "sre", "codes": {"XID_79": {"mode": "auto"}}}, workload="a"),
        snap("b", {"approver_group": "ml", "codes": {"XID_79": {"mode": "auto"}}}, workload="b"),
    ]
    found = combine(policies, [Target(workload="a"), Target(workload="b")])
    assert found.values["mode_hardware"] == "ask"
    assert resolve("HARDWARE", ["XID_79"], "REPLACE", True, found.values).mode == "ask"


def test_one_workloads_exception_does_not_decide_for_the_other():
    policies = [
        snap("a", {"mode_hardware": "observe", "codes": {}}, workload="a"),
        snap("b", {"codes": {"XID_79": {"mode": "auto"}}}, workload="b"),
    ]
    found = combine(policies, [Target(workload="a"), Target(workload="b")])
    assert resolve("HARDWARE", ["XID_79"], "REPLACE", True, found.values).mode == "observe"


def test_an_exception_that_one_workload_has_does_not_hide_another_codes_exception():
    policies = [
        Snapshot("Default", {}, {"codes": {"XID_94": {"mode": "observe"}}}, default=True),
        snap("a", {"codes": {"XID_79": {"mode": "auto"}}}, workload="a"),
    ]
    found = combine(policies, [Target(workload="a"), Target(workload="b")])
    assert resolve("HARDWARE", ["XID_79", "XID_94"], "REPLACE", True, found.values).mode == "observe"


OWN = {"of": ["XID_63", "XID_94"], "count": 3, "window_s": 3600}


@pytest.mark.parametrize(
    "one, other, merged",
    [
        ({"ROW_WEARS": OWN}, {}, {}),
        ({"ROW_WEARS": OWN}, {"ROW_WEARS": {**OWN, "of": ["XID_31"]}}, {}),
        (
            {"ROW_WEARS": OWN},
            {"ROW_WEARS": {**OWN, "of": ["XID_94", "XID_31"], "count": 5, "window_s": 60}},
            {"ROW_WEARS": {"of": ["XID_94"], "verdict": "AMBIGUOUS", "count": 5, "window_s": 60}},
        ),
        (  # at once here, only on repetition there: nobody knows which, so nothing is raised and nobody acts alone
            {"XID_31": {"verdict": "HARDWARE"}},
            {"XID_31": {"verdict": "HARDWARE", "count": 3, "window_s": 60}},
            {"XID_31": {"mode": "ask", "partial": True}},
        ),
        (
            {"XID_31": {"verdict": "HARDWARE", "count": 2, "window_s": 600}},
            {"XID_31": {"verdict": "AMBIGUOUS", "count": 3, "window_s": 60}},
            {"XID_31": {"verdict": "AMBIGUOUS", "count": 3, "window_s": 60}},
        ),
    ],
)
def test_of_two_workloads_readings_of_a_code_the_most_careful_holds(one, other, merged):
    policies = [snap("a", {"codes": one}, workload="a"), snap("b", {"codes": other}, workload="b")]
    for pair in (policies, policies[::-1]):
        found = combine(pair, [Target(workload="a"), Target(workload="b")]).values["codes"]
        assert found == merged


def test_how_a_code_is_read_is_one_word_of_one_policy():
    wide = Snapshot("Default", {}, {"codes": {"XID_63": {"verdict": "WATCH", "mode": "observe"}}}, default=True)
    near = snap("a", {"codes": {"XID_63": {"count": 3, "window_s": 60}}}, workload="a")
    found = combine([wide, near], [Target(workload="a")]).values["codes"]["XID_63"]
    assert found == {"mode": "observe", "count": 3, "window_s": 60}


def test_the_most_specific_version_is_named():
    default = Snapshot("Default", {}, {}, default=True, version="v-default")
    service = Snapshot("service", {"workload": "llm"}, {}, version="v-service")
    found = combine([default, service], [HERE])
    assert found.version == "v-service" and found.versions == ["v-service", "v-default"]


@given(draw.policies(), st.lists(draw.targets, min_size=1, max_size=3), st.randoms(), draw.questions)
def test_the_answer_does_not_depend_on_any_order(policies, targets, random, question):
    first = combine(policies, targets)
    random.shuffle(policies)
    random.shuffle(targets)
    second = combine(policies, targets)
    assert first == second
    assert resolve(*question, first.values, first.origin) == resolve(*question, second.values, second.origin)


@given(draw.policies(), st.lists(draw.targets, min_size=1, max_size=3), draw.questions)
def test_several_workloads_never_get_a_less_careful_answer_than_the_most_careful_of_them(policies, targets, question):
    together = combine(policies, targets)
    alone = [combine(policies, [target]) for target in targets]
    got = resolve(*question, together.values)
    each = [resolve(*question, one.values) for one in alone]
    assert MODES.index(got.mode) <= min(draw.carefulness(a)[0] for a in each)
    assert draw.carefulness(got)[1] <= min(draw.carefulness(a)[1] for a in each)


@given(draw.policies(), st.lists(draw.targets, min_size=1, max_size=3))
def test_each_number_is_the_most_careful_of_all_workloads(policies, targets):
    together = combine(policies, targets).values
    alone = [combine(policies, [target]).values for target in targets]
    for name, least in (("tries_24h", True), ("budget_share", True), ("disconnect_s", False), ("drain_timeout_s", False),
                        ("minimum_healthy", False), ("approvals", False), ("undo_s", False)):  # fmt: skip
        assert together[name] == (min if least else max)(v[name] for v in alone), name
    limits = [v["budget_absolute"] for v in alone if v["budget_absolute"] is not None]
    assert together["budget_absolute"] == (min(limits) if limits else None)
    order = ("job", "standalone", "never")
    assert together["wait_for_idle"] == min((v["wait_for_idle"] for v in alone), key=order.index)
    assert together["checkpoint"] == sorted({name for v in alone for name in v["checkpoint"]})
    assert together["checkpoint_silence"] == min(v["checkpoint_silence"] for v in alone)
    for at in (
        datetime(2026, 12, 19, 12, tzinfo=UTC),
        datetime(2026, 12, 22, 23, tzinfo=UTC),
        datetime(2026, 12, 25, tzinfo=UTC),
    ):
        assert bool(closed(together, at)) == any(closed(v, at) for v in alone)
    assert together["outside_witness"] == any(v["outside_witness"] for v in alone)
    assert together["auto_resolve"] == all(v["auto_resolve"] for v in alone)


@given(draw.policies(), st.lists(draw.targets, min_size=1, max_size=3), draw.targets, draw.questions)
def test_one_more_workload_only_tightens(policies, targets, more, question):
    before = resolve(*question, combine(policies, targets).values)
    after = resolve(*question, combine(policies, [*targets, more]).values)
    assert draw.carefulness(after)[0] <= draw.carefulness(before)[0]
    assert draw.carefulness(after)[1] <= draw.carefulness(before)[1]

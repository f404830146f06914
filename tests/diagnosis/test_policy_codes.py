"""What a policy may say about codes: another verdict, a number of times, a code of its own; and what it never may."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from healthboard.diagnosis import catalogue
from healthboard.diagnosis.signals import Action, Event, Verdict
from healthboard.policies import fields
from healthboard.policies.resolve import resolve
from tests.diagnosis.build import GPU, NOW, ago, assess, fine, kernel, reading

OTHER = GPU.replace("3", "4")
HARD = {"verdict": "HARDWARE", "action": "REPLACE"}
OWN = {"of": ["XID_63", "XID_92"], "count": 3, "window_s": 3600}
LOST = reading("GPU_STATUS", "lost", gpu=GPU, since=60)


def lines(code: str, times: int = 3, *, gpu: str = GPU, first: int = 1, every: float = 10):
    return [kernel(code, 10 + n * every, seq=first + n, gpu=gpu) for n in range(times)]


def test_an_applications_fault_called_a_hardware_failure_needs_its_witnesses_as_any_other():
    got = assess(lines("XID_13", 5, every=60), code_overrides={"XID_13": HARD})
    assert (got.verdict, got.action, got.may_act) == (Verdict.HARDWARE, Action.REPLACE, False)
    assert "no second witness" in got.may_act_why and got.raised
    assert assess(lines("XID_13"), [*fine(), LOST], code_overrides={"XID_13": HARD}).may_act


def test_a_passing_note_made_a_question_is_never_decided_alone():
    named = {"XID_63": {"verdict": "AMBIGUOUS", "action": "REPLACE"}}
    values = {**fields.defaults(), "mode_ambiguous": "auto"}

    def mode(got):
        return resolve(got.verdict, got.codes, got.action, got.may_act, values, raised=got.raised).mode

    raised, both = (assess(e, code_overrides=named) for e in (lines("XID_63"), lines("XID_63") + lines("XID_119")))
    assert (raised.verdict, raised.raised, mode(raised)) == (Verdict.AMBIGUOUS, True, "ask")
    assert (both.action, mode(both)) == (Action.REPLACE, "ask")  # the heavier step is the policy's
    natural = assess(lines("XID_119"), code_overrides=named)
    assert (natural.verdict, natural.raised, mode(natural)) == (Verdict.AMBIGUOUS, False, "auto")


def test_a_finding_of_the_policys_making_is_no_witness_for_another():
    hint = Event(ago(12), "XID_13", "dcgm", GPU)
    told = assess([*lines("XID_79", 1), hint], code_overrides={"XID_13": HARD})
    assert {f.code for f in told.findings} >= {"XID_79", "XID_13"}
    assert (told.primary.code, told.may_act) == ("XID_79", False)


def test_a_number_of_times_may_lead_to_a_hardware_failure():
    named = {"XID_119": {**HARD, "action": "REBOOT", "count": 3, "window_s": 600}}
    assert assess(lines("XID_119", 2), code_overrides=named).verdict is Verdict.AMBIGUOUS
    got = assess(lines("XID_119", 3), code_overrides=named)
    assert (got.verdict, got.action, got.may_act) == (Verdict.HARDWARE, Action.REBOOT, False)
    assert not got.raised  # it was a matter for a person before


def test_what_is_over_or_harmless_by_the_rules_stays_so():
    back = [
        reading("GPU_STATUS", "lost", gpu=GPU, since=300, last=120),
        reading("GPU_STATUS", "ok", gpu=GPU, since=100),
    ]
    for got in (
        assess([kernel("XID_79", 310)], [*fine(), *back], code_overrides={"XID_79": HARD}),
        assess([kernel("XID_163", 60), kernel("XID_162", 10, seq=2)], code_overrides={"XID_163": HARD}),
    ):
        assert got.verdict in (Verdict.WATCH, Verdict.HEALTHY), got


def test_a_code_of_ones_own_counts_others_on_one_gpu_and_falls_again_with_time():
    named = {"MEMORY_WEARS": OWN}
    two = [*lines("XID_63", 1), *lines("XID_92", 1, first=5)]
    elsewhere = lines("XID_92", 1, first=9, gpu=OTHER)
    assert assess([*two, *elsewhere], code_overrides=named).verdict is Verdict.WATCH
    third = kernel("XID_63", 1800, seq=0)
    got = assess([*two, *elsewhere, third], code_overrides=named)
    assert (got.verdict, got.action, got.primary.code, got.primary.gpu) == (
        Verdict.AMBIGUOUS, Action.DIAGNOSE, "MEMORY_WEARS", GPU,
    )  # fmt: skip
    assert got.raised and not got.may_act and "XID_63, XID_92: 3 times within 3600 s" in got.primary.why
    later = NOW + timedelta(seconds=1801)
    fresh = [reading(r.name, r.value, r.source, since=9000, last=-1801) for r in fine()]
    assert assess([*two, third], fresh, now=later, code_overrides=named).verdict is Verdict.WATCH
    alone = assess([*two, third], [], code_overrides=named)
    assert alone.next_at == ago(1800) + timedelta(seconds=3600)


def test_a_count_goes_on_over_a_reboot():
    before = [kernel("XID_92", 9000, seq=1, boot="b0"), kernel("XID_92", 9100, seq=2, boot="b0")]
    named = {"XID_92": {"count": 3, "window_s": 2 * 86400}}
    assert assess([*before, kernel("XID_92", 10)], code_overrides=named).verdict is Verdict.AMBIGUOUS
    assert assess(before, code_overrides=named).verdict is Verdict.HEALTHY


CODES = ("XID_13", "XID_31", "XID_43", "XID_45", "XID_63", "XID_92", "XID_94")
words = st.fixed_dictionaries(
    {},
    optional={
        "verdict": st.sampled_from(["WORKLOAD", "WATCH", "AMBIGUOUS", "HARDWARE", "NONSENSE", None, 5]),
        "action": st.sampled_from(["REPLACE", "REBOOT", "DIAGNOSE", "NOTHING", None, 5]),
        "count": st.sampled_from([2, 3, 0, -1, "3", None]),
        "window_s": st.sampled_from([60, 3600.5, 1e300, 0, "1h", None]),
        "of": st.sampled_from([["XID_63"], ["XID_13", "XID_45"], [None], "XID_63", None]),
    },
)


@settings(max_examples=80, deadline=None)
@given(
    named=st.dictionaries(st.sampled_from((*CODES, "OWN_CODE")), st.one_of(words, st.none(), st.just("x")), max_size=4),
    shown=st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from([5, 90, 700])), max_size=8),
)
def test_no_policy_makes_what_one_log_says_of_applications_and_notes_act_alone(named, shown):
    events = [kernel(code, seconds, seq=n) for n, (code, seconds) in enumerate(shown)]
    plain = assess(events)
    got = assess(events, code_overrides=named)
    values = {**fields.defaults(), "mode_ambiguous": "auto"}
    mode = resolve(got.verdict, got.codes, got.action, got.may_act, values, raised=got.raised).mode
    assert not got.may_act
    if mode == "auto":
        assert plain.verdict is Verdict.AMBIGUOUS and not got.raised
    assert all(f.code in catalogue.load() or f.rule == "policy-own" for f in got.findings)

"""Policies and targets drawn at random, small enough that they meet often."""

from __future__ import annotations

from hypothesis import strategies as st

from healthboard.policies import check
from healthboard.policies.fields import ACTIONS, MODES
from healthboard.policies.matching import Snapshot, Target

CODES = ("XID_79", "XID_119", "GPU_MISSING")
entries = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(MODES),
        "action": st.sampled_from(("NONE", "DIAGNOSE", "REBOOT", "REPLACE")),
    },
).filter(lambda e: e and not check.problems({"codes": {"XID_79": e}}))
OPTIONS = {
    "mode_hardware": st.sampled_from(MODES),
    "mode_ambiguous": st.sampled_from(MODES),
    "codes": st.dictionaries(st.sampled_from(CODES), entries, max_size=3),
    "ladder": st.sampled_from((["REBOOT", "REPLACE"], ["REBOOT"], ["REPLACE"], [])),
    "tries_24h": st.integers(0, 3),
    "outside_witness": st.booleans(),
    "disconnect_s": st.sampled_from((60, 300, 900)),
    "budget_share": st.sampled_from((0.05, 0.2, 0.5)),
    "budget_absolute": st.sampled_from((None, 1, 3)),
    "minimum_healthy": st.integers(0, 3),
    "one_zone_at_a_time": st.booleans(),
    "windows": st.sampled_from(([], ["Sat 00:00-24:00 UTC"], ["Mon-Fri 22:00-06:00 Europe/Berlin"])),
    "blackouts": st.sampled_from(([], ["2026-12-24 to 2026-12-26 UTC"])),
    "wait_for_idle": st.sampled_from(("job", "standalone", "never")),
    "checkpoint": st.sampled_from(([], ["hook-a"], ["hook-b"])),
    "checkpoint_silence": st.sampled_from(("ask", "go_on")),
    "drain_timeout_s": st.sampled_from((60, 1800)),
    "dead_host": st.sampled_from(("ask", "auto")),
    "undo_s": st.sampled_from((0, 30)),
    "expiry_s": st.sampled_from((600, 3600)),
    "auto_resolve": st.booleans(),
    "approvals": st.integers(1, 2),
    "approver_group": st.sampled_from(("", "sre")),
    "notify": st.sampled_from((["operators"], ["llm"])),
}
settings = st.fixed_dictionaries({}, optional=OPTIONS)
#: what all policies of one drawing may set, beside modes and codes: few, so that they meet, and little is drawn
subsets = st.lists(
    st.sampled_from(sorted({*OPTIONS} - {"mode_hardware", "mode_ambiguous", "codes"})), max_size=6, unique=True
)


@st.composite
def policies(draw, most: int = 5) -> list[Snapshot]:
    names = ("mode_hardware", "mode_ambiguous", "codes", *draw(subsets))
    some = st.fixed_dictionaries({}, optional={name: OPTIONS[name] for name in names})
    found = []
    if draw(st.booleans()):
        found.append(Snapshot("default", {}, draw(some), default=True))
    for number in range(draw(st.integers(0, most))):
        match = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "pool": st.sampled_from(("train", "infer")),
                    "workload": st.sampled_from(("a", "b")),
                    "account": st.just("111122223333"),
                    "tags": st.sampled_from(({"team": "x"}, {"team": "x", "tier": ""})),
                },
            ).filter(bool)
        )
        found.append(Snapshot(f"p{number}", match, draw(some)))
    return found


targets = st.builds(
    Target,
    account=st.just("111122223333"),
    region=st.just("us-east-1"),
    cluster=st.just("gpu"),
    pool=st.just("train"),
    workload=st.sampled_from(("", "a", "b", "c")),
    tags=st.sampled_from(({}, {"team": "x"}, {"team": "x", "tier": "1"})),
)
questions = st.tuples(
    st.sampled_from(("HARDWARE", "AMBIGUOUS", "WATCH", "WORKLOAD", "UNKNOWN", "HEALTHY", "CORRELATED")),
    st.lists(st.sampled_from(CODES), unique=True, max_size=3),
    st.sampled_from(("NONE", "DIAGNOSE", "REBOOT", "REPLACE")),
    st.booleans(),
)


def carefulness(answer) -> tuple[int, int]:
    return MODES.index(answer.mode), ACTIONS.index(answer.action)

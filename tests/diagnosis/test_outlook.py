"""What would change the answer: each thing that is promised is tried on `evaluate`, so that words and rules agree."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta

import pytest

from healthboard.diagnosis.outlook import WITNESSES, Change, group_of, of_json, outlook
from healthboard.diagnosis.signals import Assessment, Context, Thresholds, Verdict
from tests.diagnosis.build import GPU, NOW, ago, assess, fine, kernel, reading

ECS_BAD = reading("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", since=5, seen=1)
LOST = reading("GPU_STATUS", "lost", gpu=GPU, since=5, seen=1)
WAITS = reading("GPU_STATUS", "reset_required", gpu=GPU, since=5, seen=1)
WORN = {"failure": True, "pending": False}


def gauge(number):
    return reading("XID_LAST", number, "dcgm", gpu=GPU, since=5, seen=1)


#: group -> (events and readings of the fault alone, source -> what it adds)
TRIED = {
    "gone": (([kernel("XID_79", 10)], []), {"nvml": LOST, "dcgm": gauge(79), "ecs": ECS_BAD}),
    "number": (([kernel("XID_95", 10)], []), {"nvml": WAITS, "dcgm": gauge(95), "ecs": ECS_BAD}),
    "ecs": (([], [ECS_BAD]), {"nvml": LOST, "kernel": kernel("XID_79", 5)}),
    "host": (
        ([], [reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=20, seen=1)]),
        {"ecs": reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=30, seen=3)},
    ),
    "worn": (
        ([], [reading("ROW_REMAP", WORN, gpu=GPU, since=20, seen=1)]),
        {"dcgm": reading("ROW_REMAP", WORN, "dcgm", gpu=GPU, since=10, seen=1)},
    ),
}


def _with(events, readings, *more):
    said = {r.name: r for r in readings if r.name in ("EC2_SYSTEM", "AGENT_CONNECTIVITY")}
    said |= {r.name: r for r in more if getattr(r, "name", "") in ("EC2_SYSTEM", "AGENT_CONNECTIVITY")}
    rest = [r for r in (*readings, *more) if hasattr(r, "name") and r.name not in said]
    return assess([*events, *(x for x in more if not hasattr(x, "name"))], [*fine(**said), *rest])


@pytest.mark.parametrize("group", TRIED)
def test_the_witness_that_is_called_missing_lets_it_act(group):
    (events, readings), adds = TRIED[group]
    alone = _with(events, readings)
    assert (alone.verdict, alone.may_act) == (Verdict.HARDWARE, False), alone.why
    assert group_of(alone.primary.code) == group
    told = [c.text for c in outlook(alone) if c.kind == "witness"]
    assert set(adds) == set(WITNESSES[group]) - set(alone.primary.sources)
    for source, more in adds.items():
        assert WITNESSES[group][source] in told[0], source
        got = _with(events, readings, more)
        assert got.may_act, (source, got.may_act_why)
        assert not [c for c in outlook(got) if c.kind == "witness"]


def test_a_witness_outside_the_node_is_named_where_the_policy_wants_one():
    limits = Thresholds(outside_witness=True)
    told = outlook(assess([kernel("XID_79", 10)], [*fine(), LOST], outside_witness=True), thresholds=limits)
    assert [c.text for c in told if c.kind == "witness"] == [
        "a second witness would let it act alone: ECS reads accelerated compute as impaired"
    ]


def test_where_something_speaks_against_it_no_witness_is_promised():
    answers = reading("GPU_STATUS", "ok", gpu=GPU, since=9000)
    got = assess([kernel("XID_79", 10)], [*fine(), answers, gauge(79)])
    assert (got.verdict, got.may_act_why) == (Verdict.HARDWARE, "NVML has read the GPU since")
    assert [c.kind for c in outlook(got)] == ["recovery"]


def test_the_time_is_when_a_person_is_asked():
    events = [kernel("XID_79", 10)]
    waits = next(c for c in outlook(assess(events)) if c.kind == "time")
    assert waits.at == ago(10) + Thresholds().witness_wait
    late = assess(events, [*fine()], now=waits.at)
    assert "a person decides" in late.may_act_why
    assert not [c for c in outlook(late) if c.kind == "time"]
    away = reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=60, seen=3)
    gone = next(c for c in outlook(assess([], fine(AGENT_CONNECTIVITY=away))) if c.kind == "time")
    assert gone.at == ago(60) + Thresholds().agent_disconnect
    later = reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=60, last=-300, seen=9)
    readings = [later if r.name == "AGENT_CONNECTIVITY" else r for r in fine()]
    assert assess([], readings, now=gone.at + timedelta(seconds=1)).verdict is not Verdict.HEALTHY


def test_the_recovery_that_is_named_takes_the_verdict_back():
    told = {c.text for c in outlook(assess([kernel("XID_79", 60)], [*fine(), LOST])) if c.kind == "recovery"}
    assert told == {"NVML reading the GPU again since would leave it to be watched"}
    before = reading("GPU_STATUS", "lost", gpu=GPU, since=60, last=20)
    after = reading("GPU_STATUS", "ok", gpu=GPU, since=10)
    assert assess([kernel("XID_79", 60)], [*fine(), before, after]).verdict is Verdict.WATCH

    told = {c.text for c in outlook(assess([kernel("XID_119", 60)])) if c.kind == "worse"}
    assert any("after a reboot makes it hardware" in text for text in told)
    again = [kernel("XID_119", 8000, boot="b0"), kernel("XID_119", 60)]
    assert assess(again).verdict is Verdict.HARDWARE
    assert any("asking for a reset" in text for text in told)
    asks = reading("RECOVERY_ACTION", 1, gpu=GPU, since=5)
    assert assess([kernel("XID_119", 60)], [*fine(), asks]).verdict is Verdict.HARDWARE


def test_condemned_hardware_names_the_person_who_lifts_it():
    context = Context(instance="i-1", expected_gpus=8, condemned={GPU: "XID_79, repair 7"})
    got = assess([], [*fine(), reading("GPU_STATUS", "ok", gpu=GPU, since=60)], context=context)
    assert [c.kind for c in outlook(got)] == ["recovery", "person"]
    assert "lifts the condemnation" in outlook(got)[0].text


def test_a_well_machine_has_no_outlook_and_the_kept_form_gives_the_same():
    assert outlook(assess()) == ()
    for events in ([kernel("XID_79", 10)], [kernel("XID_31", 10), kernel("XID_119", 8)]):
        a = assess(events)
        kept = json.loads(json.dumps(asdict(a) | {"codes": a.codes}, default=str))
        assert outlook(of_json(kept)) == outlook(a) != ()
    for bad in (None, [], {}, {"verdict": "x"}, {"verdict": "HARDWARE", "action": "REPLACE", "findings": [{}]}, "x"):
        assert of_json(bad) is None
    assert isinstance(of_json({"verdict": "HEALTHY", "action": "NONE"}), Assessment)
    assert isinstance(outlook(a)[0], Change) and NOW

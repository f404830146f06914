"""What evaluate() is given, and that stored evidence is read again exactly as it was."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Event, Reading, Thresholds, Verdict
from healthboard.fleet import evidence, record
from healthboard.fleet.models import Head, HealthEvent, Source
from tests import factories

pytestmark = pytest.mark.django_db
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def told(name, value, source, gpu=None, **attrs):
    at = clock.now()
    return Reading(name, value, source, at, at, gpu=gpu, attrs=attrs)


@pytest.fixture
def broken():
    """A node that lost a GPU a minute ago and said so twice."""
    one = factories.instance(gpus_expected=8)
    Gpu = factories.Gpu
    Gpu.objects.create(
        account=one.account, region=one.region, uuid=UUID, instance=one, pci="0000:3b:00", name="NVIDIA H100 80GB HBM3"
    )
    now = clock.now()
    line = Event(
        now - timedelta(seconds=60), "XID_79", "kernel", gpu="0000:3b:00", text="NVRM: Xid 79", boot_id="b", seq=7
    )
    readings = [
        told("BOOT_ID", "b", "node"), told("NVML", "ok", "nvml"), told("GPU_STATUS", "lost", "nvml", UUID, pci="0000:3b:00")
    ]  # fmt: skip
    for n, events in ((1, [line]), (2, [])):
        record.record(one, "node", now - timedelta(seconds=70 - 15 * n), readings, events, boot_id="b", seq=n)
    return one


def test_the_open_interval_is_told_as_a_reading_with_its_observations(broken):
    now = clock.now()
    events, readings, context = evidence.load(broken, now=now)
    lost = next(r for r in readings if r.name == "GPU_STATUS")
    assert (lost.value, lost.gpu, lost.observations) == ("lost", UUID, 2)
    assert lost.last - lost.since == timedelta(seconds=15)
    assert [(e.code, e.seq) for e in events] == [("XID_79", 7)]
    assert context.expected_gpus == 8 and context.architecture == "hopper"
    assert context.gpu_names == {"0000:3b:00": UUID}


def test_stored_evidence_is_read_again_exactly_as_it_was(broken):
    now = clock.now()
    events, readings, context = evidence.load(broken, now=now)
    limits = Thresholds(code_overrides={"XID_31": {"count": 3, "window_s": 60}}, outside_witness=False)
    first = evaluate(events, readings, now=now, context=context, thresholds=limits)
    frozen = evidence.freeze(events, readings, context, thresholds=limits, now=now)
    again = evidence.thaw(json.loads(json.dumps(frozen)))
    assert (again.events, again.readings, again.context, again.now) == (events, readings, context, now)
    assert again.thresholds == limits
    second = evaluate(again.events, again.readings, now=again.now, context=again.context, thresholds=again.thresholds)
    assert second == first and first.verdict is Verdict.HARDWARE and first.may_act


def test_what_comes_later_is_not_known_yet(broken):
    before = clock.now() - timedelta(minutes=5)
    events, readings, _ = evidence.load(broken, now=before)
    assert events == [] and readings == []


def test_backlog_is_not_evidence(broken):
    HealthEvent.objects.update(backlog=True)
    assert evidence.load(broken, now=clock.now())[0] == []


def test_a_change_of_attributes_alone_does_not_break_a_continuous_reading():
    one, now = factories.instance(), clock.now()
    for n, reason in enumerate(["XID_95", "XID_95", "XID_79"]):
        at = now - timedelta(seconds=60 - 15 * n)
        record.record(one, "ecs", at, [told("ACCELERATED_COMPUTE", "IMPAIRED", "ecs", reason=reason)], [])
    (only,) = [r for r in evidence.load(one, now=now)[1] if r.name == "ACCELERATED_COMPUTE"]
    assert only.observations == 3 and only.attrs == {"reason": "XID_79"}
    assert only.last - only.since == timedelta(seconds=30)


def test_a_gap_breaks_a_continuous_reading():
    one, now = factories.instance(), clock.now()
    for minutes in (20, 0):
        at = now - timedelta(minutes=minutes)
        record.record(one, "ecs", at, [told("AGENT_CONNECTIVITY", "IMPAIRED", "ecs")], [])
    names = [(r.name, r.observations) for r in evidence.load(one, now=now)[1]]
    assert names == [("AGENT_CONNECTIVITY", 1), ("GAP", 0), ("AGENT_CONNECTIVITY", 1)]


def test_a_silent_channel_is_an_open_gap_that_names_its_reason():
    one, now = factories.instance(), clock.now()
    record.record(one, "ec2", now - timedelta(minutes=10), [told("EC2_SYSTEM", "OK", "ec2")], [])
    Source.objects.create(account=one.account, region=one.region, name="ec2", error="RequestLimitExceeded")
    gap = evidence.load(one, now=now)[1][-1]
    assert (gap.name, gap.source, gap.value) == ("GAP", "ec2", "RequestLimitExceeded")
    assessed = evaluate([], evidence.load(one, now=now)[1], now=now, context=evidence.context_of(one, one.gpus.all()))
    assert assessed.verdict is Verdict.UNKNOWN


def test_a_node_that_we_silenced_ourselves_is_an_expected_gap(broken):
    Head.objects.filter(channel="node").update(ended_by_us=True)
    gaps = [r for r in evidence.load(broken, now=clock.now() + timedelta(minutes=2))[1] if r.name == "GAP"]
    assert {g.source for g in gaps} == {"nvml", "node"} and all(g.attrs == {"expected": True} for g in gaps)

"""The GPUs of the worker's own host, read through the real NVML binding and stored as that one instance's."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from healthboard import clock, config, wake
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet import evidence
from healthboard.fleet.models import Gpu, Head, Interval, NodeRequest, Source
from tests import factories
from tests.node.machine import BOOT
from workers.collect import local_gpus, sources, tasks

pytestmark = pytest.mark.django_db
ID = "i-0123456789abcdef0"


@pytest.fixture
def host(machine, tmp_path, monkeypatch):
    """This host as an instance of the inventory; the child ends with the test."""
    monkeypatch.setattr(wake, "_quiet_until", float("inf"))
    monkeypatch.setenv("HEALTHBOARD_LOCAL_GPUS", ID)
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    made = factories.instance(instance_id=ID, boot_id=BOOT, node_seen_at=None, gpus_expected=8)
    yield made
    local_gpus.close()


def read() -> bool:
    Source.objects.filter(name="local").update(attempted_at=None)
    return local_gpus.collect()


def assess(host):
    host.refresh_from_db()
    now = clock.now()
    events, readings, context = evidence.load(host, now=now)
    return evaluate(events, readings, now=now, context=context)


def values(host, name):
    return set(Interval.objects.filter(instance=host, name=name, until=None).values_list("value", flat=True))


def test_well_gpus_are_stored_as_a_nodes_would_be(host, machine):
    assert read() and read()
    assert (values(host, "NVML"), values(host, "GPU_COUNT"), values(host, "GPU_STATUS")) == ({"ok"}, {8}, {"ok"})
    assert Gpu.objects.filter(instance=host, status="ok").count() == 8
    head = Head.objects.get(instance=host)
    assert (head.channel, head.seq, head.count, head.boot_id) == ("local", 2, 2, BOOT)
    assert assess(host).verdict is Verdict.HEALTHY and host.node_seen_at is not None
    source = Source.objects.get(name="local", scope=ID)
    assert (source.error, source.good_rounds) == ("", 2)
    assert not Source.objects.filter(name="node").exists()  # no reporter spoke


def test_a_new_process_goes_on_counting(host):
    read()
    local_gpus.close()
    read()
    assert Head.objects.get(instance=host).count == 2


def test_a_lost_gpu_is_read_with_its_name(host, machine):
    read()
    machine.set(3, lost=1)
    read()
    assert Gpu.objects.get(uuid=machine.uuid(3)).status == "lost"
    got = assess(host)
    assert (got.verdict, got.primary.code, got.primary.gpu) == (Verdict.HARDWARE, "NVML_GPU_IS_LOST", machine.uuid(3))


def test_a_driver_that_hangs_costs_its_time_limit_and_is_a_reading_of_its_own(host, machine, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_NVML_TIMEOUT", "0.4")
    monkeypatch.setenv("HEALTHBOARD_NVML_INIT_TIMEOUT", "2")
    machine.set(3, hang="nvmlDeviceGetRemappedRows")
    began = time.monotonic()
    assert read()
    assert time.monotonic() - began < 15
    got = assess(host)
    assert (got.verdict, got.codes[0], got.may_act) == (Verdict.UNKNOWN, "NVML_PROBE_HUNG", False)
    source = Source.objects.get(name="local")
    assert source.good_rounds == 0 and "no answer within 2 s" in source.error and machine.uuid(3) in source.error


def test_a_crash_of_the_child_does_not_touch_the_worker(host, machine):
    machine.write("init crash")
    assert read()
    got = assess(host)
    assert (got.verdict, got.codes[0]) == (Verdict.UNKNOWN, "NVML_PROBE_CRASHED")
    assert "SIGSEGV" in Source.objects.get(name="local").error


def test_without_the_library_it_says_why_and_concludes_nothing(host, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nonexistent")
    assert read()
    got = assess(host)
    assert (got.verdict, got.codes[0]) == (Verdict.UNKNOWN, "NVML_DRIVER_NOT_LOADED")
    assert "library_not_found" in Source.objects.get(name="local").error
    assert not Gpu.objects.filter(instance=host).exists()


def test_a_host_that_stops_being_read_becomes_unknown(host):
    read()
    later = clock.now() + timedelta(minutes=10)
    Source.objects.filter(name="local").update(error="the worker was stopped")
    events, readings, context = evidence.load(host, now=later)
    got = evaluate(events, readings, now=later, context=context)
    assert got.verdict is Verdict.UNKNOWN and "the worker was stopped" in got.why


def test_what_is_asked_of_the_node_stays_for_its_reporter(host):
    now = clock.now()
    asked = NodeRequest.objects.create(
        instance=host, verb="diagnose-1", asked_at=now, asked_by="x", expires_at=now + timedelta(hours=1)
    )
    read()
    asked.refresh_from_db()
    assert asked.delivered_at is None


def test_one_reading_at_a_time(host):
    with clock.virtual(clock.now()):  # a slow machine takes longer over the first than the interval
        assert local_gpus.collect() is True
        assert local_gpus.collect() is False
    with clock.virtual(clock.now() + clock.scaled(sources.INTERVALS_S["local"])):
        assert local_gpus.collect() is True


def test_off_is_the_default_and_an_unknown_host_writes_nothing(machine, monkeypatch, caplog):
    tasks.own_gpus()
    monkeypatch.setenv("HEALTHBOARD_LOCAL_GPUS", ID)
    tasks.own_gpus()
    assert "is not in the inventory" in caplog.text
    assert local_gpus._reader is None and not Source.objects.exists() and not Head.objects.exists()
    monkeypatch.setenv("HEALTHBOARD_LOCAL_GPUS", "this one")
    with pytest.raises(config.BadSetting, match="not the id of an instance"):
        config.local_gpus()


def test_the_host_of_a_worker_is_never_touched(monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_LOCAL_GPUS", ID)
    monkeypatch.setenv("HEALTHBOARD_SELF_INSTANCE", "i-00000001")
    assert config.own_instances() == {ID, "i-00000001"}

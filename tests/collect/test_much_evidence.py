"""What is told all the time pushes nothing else out of what an instance is read by, and reading it stays bounded."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.diagnosis.evaluate import evaluate
from healthboard.fleet import evidence
from healthboard.fleet.models import Head, HealthEvent, Instance, Interval
from tests import factories

pytestmark = pytest.mark.django_db
UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def on() -> Instance:
    one = factories.instance(booted_at=factories.ago(80_000))
    factories.reading(one, "NVML", "ok", channel="node", source="nvml")
    return one


def ended(on: Instance, name: str, values: list, *, until: float = 0, gpu: str = UUID) -> None:
    """Readings that ended one after the other, each after a second, the last of them `until` seconds ago."""
    head, now, count = Head.objects.get(instance=on), clock.now(), len(values)
    Interval.objects.bulk_create(
        Interval(
            head=head, instance=on, source="nvml", name=name, gpu=gpu, value=value, first_count=1, observations=1,
            since=now - timedelta(seconds=until + count - n), until=now - timedelta(seconds=until + count - n - 1),
        ) for n, value in enumerate(values)
    )  # fmt: skip


def flaps(on: Instance, count: int = evidence.INTERVALS + 100) -> None:
    """A counter that moves all the time."""
    ended(on, "ECC", [{"volatile_corrected": n} for n in range(count)], gpu="GPU-other")


def lines(on: Instance, count: int, code: str = "XID_13", *, gpus: int = 1) -> None:
    """Lines of an application that crashes again and again."""
    now = clock.now()
    HealthEvent.objects.bulk_create(
        HealthEvent(
            instance=on, source="kernel", code=code, gpu=f"GPU-{n % gpus}", at=(at := now - timedelta(seconds=n / 10)),
            last_at=at, received_at=at, boot_id=on.boot_id, seq=1_000_000 - n, text=f"NVRM: Xid: 13, pid={n}",
        ) for n in range(count)
    )  # fmt: skip


def assessed(on: Instance):
    now = clock.now()
    events, readings, context = evidence.load(on, now=now)
    return evaluate(events, readings, now=now, context=context)


def test_a_reading_that_stands_is_told_however_much_flaps_beside_it(on):
    factories.reading(on, "GPU_STATUS", "lost", channel="node", source="nvml", gpu=UUID, since=factories.ago(72_000))
    assert assessed(on).codes == ("NVML_GPU_IS_LOST",)
    flaps(on)
    assert assessed(on).codes[0] == "NVML_GPU_IS_LOST"


def test_every_reading_that_stands_is_told(on):
    for n in range(evidence.INTERVALS + 20):
        factories.reading(on, "GPU_STATUS", "ok", channel="node", source="nvml", gpu=f"GPU-{n}")
    flaps(on)
    readings = evidence.load(on, now=clock.now())[1]
    standing = {r.gpu for r in readings if r.name == "GPU_STATUS"}
    assert len(standing) == evidence.INTERVALS + 20


def test_what_was_over_stays_over_however_much_flaps_beside_it(on):
    """The driver asked for a reset and took that back: nobody may lose sight of the first half."""
    factories.event(on, "XID_95", at=factories.ago(7200), gpu=UUID)
    ended(on, "RECOVERY_ACTION", [1], until=7000)
    factories.reading(on, "RECOVERY_ACTION", 0, channel="node", source="nvml", gpu=UUID, since=factories.ago(7000))
    assert assessed(on).verdict == "HEALTHY"
    flaps(on)
    assert assessed(on).verdict == "HEALTHY"


def test_a_failure_is_told_however_often_an_application_crashes_after_it(on):
    factories.event(on, "XID_79", at=factories.ago(7200), gpu=UUID)
    lines(on, evidence.EVENTS + 10)
    assert assessed(on).codes[0] == "XID_79"


def test_a_failure_is_told_among_lines_of_more_kinds_than_are_read(on):
    factories.event(on, "XID_79", at=factories.ago(7200), gpu=UUID)
    lines(on, 3 * evidence.EVENTS, gpus=3 * evidence.EVENTS)
    events = evidence.load(on, now=clock.now())[0]
    assert "XID_79" in {e.code for e in events} and len(events) <= 2 * evidence.EVENTS


def test_how_much_is_looked_through_is_bounded(on, monkeypatch):
    """Nothing older than the newest so many rows is found, and few are read, whatever a node sends."""
    monkeypatch.setattr(evidence, "LOOKED_THROUGH", evidence.INTERVALS + 300)
    ended(on, "RECOVERY_ACTION", [1], until=7000)
    ended(on, "GPU_STATUS", ["lost"], until=evidence.INTERVALS + 200)
    flaps(on, evidence.INTERVALS + 150)
    assert "GPU_STATUS" in {r.name for r in evidence.load(on, now=clock.now())[1]}
    flaps(on, evidence.INTERVALS + 400)
    with CaptureQueriesContext(connection) as queries:
        readings = evidence.load(on, now=clock.now())[1]
    assert not {"RECOVERY_ACTION", "GPU_STATUS"} & {r.name for r in readings}
    assert len(readings) <= 2 * evidence.INTERVALS + 2 and len(queries) <= 12


def test_little_evidence_takes_one_query_for_events_and_one_for_readings(on):
    flaps(on, 100)
    lines(on, 100)
    with CaptureQueriesContext(connection) as queries:
        evidence.load(on, now=clock.now())
    tables = [t for q in queries for t in ("fleet_interval", "fleet_healthevent") if f'FROM "{t}"' in q["sql"]]
    assert sorted(tables) == ["fleet_healthevent", "fleet_interval"]

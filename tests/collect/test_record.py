"""Rounds become intervals, bursts and gaps; what was told before has no effect."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.diagnosis.signals import Event, Reading
from healthboard.fleet import heads, record, unchanged
from healthboard.fleet.models import Gpu, Head, HealthEvent, Instance, Interval
from tests import factories

pytestmark = pytest.mark.django_db
STEP = timedelta(seconds=6)


def reading(value, name="EC2_SYSTEM", source="ec2", gpu=None, **attrs):
    at = clock.now()
    return Reading(name, value, source, at, at, gpu=gpu, attrs=attrs)


def xid(at, seq, code="XID_79", boot="boot-a", **attrs):
    return Event(at, code, "kernel", gpu="GPU-1", text=f"NVRM: {code}", attrs=attrs, boot_id=boot, seq=seq)


def node(instance, at, seq, *events, boot="boot-a", readings=()):
    return record.record(
        instance, "node", at, [reading(boot, "BOOT_ID", "node"), *readings], events, boot_id=boot, seq=seq
    )


@pytest.fixture
def start():
    return clock.now() - timedelta(minutes=30)


def test_an_unchanged_reading_prolongs_one_interval(start):
    one = factories.instance()
    changed = [record.record(one, "ec2", start + n * STEP, [reading("OK")], []) for n in range(5)]
    assert changed == [True, True, False, False, False]  # new, then confirmed, then nothing more to tell
    row = Interval.objects.get(instance=one)
    head = Head.objects.get(instance=one)
    assert (row.since, row.until, head.last_at, head.count) == (start, None, start + 4 * STEP, 5)


def test_a_change_closes_the_interval_at_its_last_confirmation(start):
    one = factories.instance()
    for n, value in enumerate(["OK", "OK", "OK", "IMPAIRED"]):
        record.record(one, "ec2", start + n * STEP, [reading(value)], [])
    old, new = Interval.objects.filter(instance=one).order_by("since")
    assert (old.value, old.until, old.observations) == ("OK", start + 2 * STEP, 3)
    assert (new.value, new.since, new.until) == ("IMPAIRED", start + 3 * STEP, None)


def test_a_reading_that_is_no_longer_told_ends(start):
    one = factories.instance()
    record.record(one, "ec2", start, [reading("OK"), reading("OK", "EC2_INSTANCE")], [])
    record.record(one, "ec2", start + STEP, [reading("OK")], [])
    assert Interval.objects.get(instance=one, name="EC2_INSTANCE").until == start


def test_what_moves_without_meaning_is_no_change(start):
    one = factories.instance()
    for n in range(3):
        record.record(one, "ecs", start + n * STEP, [reading("ACTIVE", "ECS_STATUS", "ecs", version=n, running=n)], [])
    assert Interval.objects.filter(instance=one).count() == 1


def test_silence_becomes_a_gap_and_ends_what_held_before(start):
    one = factories.instance()
    record.record(one, "ec2", start, [reading("IMPAIRED")], [])
    record.record(one, "ec2", start + STEP, [reading("IMPAIRED")], [])
    late = start + timedelta(minutes=10)
    record.record(one, "ec2", late, [reading("IMPAIRED")], [])
    before, gap, after = Interval.objects.filter(instance=one).order_by("since", "pk")
    assert (before.until, before.observations) == (start + STEP, 2)
    assert gap.name == "GAP" and gap.source == "ec2" and gap.since == start + STEP and gap.until < late
    assert (after.since, after.until) == (late, None)  # counted anew: what lies between was not seen


def test_an_older_answer_that_comes_late_has_no_effect(start):
    one = factories.instance()
    record.record(one, "ec2", start + STEP, [reading("IMPAIRED")], [])
    assert record.record(one, "ec2", start, [reading("OK")], []) is False
    assert Interval.objects.get(instance=one).value == "IMPAIRED"


def test_a_report_that_comes_again_has_no_effect(start):
    one = factories.instance()
    lost = reading("lost", "GPU_STATUS", "nvml", gpu="GPU-1")
    node(one, start, 1, xid(start, 10), readings=[lost])
    item = record.Item(one, [lost], [xid(start, 10), xid(start, 11)], "boot-a", 1)
    outcome = record.record_many("node", start + STEP, [item])[one.pk]
    assert outcome.duplicate and not outcome.changed
    assert HealthEvent.objects.get(instance=one).count == 1


def test_a_kernel_line_that_comes_again_in_a_later_report_is_dropped(start):
    one = factories.instance()
    node(one, start, 1, xid(start, 10))
    node(one, start + STEP, 2, xid(start, 10), xid(start + STEP, 11, code="XID_45"))
    assert sorted(HealthEvent.objects.values_list("code", "count")) == [("XID_45", 1), ("XID_79", 1)]


def test_a_boot_left_behind_cannot_speak_again(start):
    one = factories.instance()
    node(one, start, 5, boot="boot-a")
    node(one, start + STEP, 1, boot="boot-b")
    item = record.Item(one, [reading("boot-a", "BOOT_ID", "node")], [xid(start, 99)], "boot-a", 6)
    assert record.record_many("node", start + 2 * STEP, [item])[one.pk].duplicate
    assert Head.objects.get(instance=one).boot_id == "boot-b" and not HealthEvent.objects.exists()


def test_a_reboot_begins_every_interval_anew(start):
    one = factories.instance()
    lost = reading("lost", "GPU_STATUS", "nvml", gpu="GPU-1")
    node(one, start, 1, readings=[lost], boot="boot-a")
    node(one, start + STEP, 1, readings=[lost], boot="boot-b")
    assert Interval.objects.filter(name="GPU_STATUS").count() == 2
    assert Interval.objects.get(name="GPU_STATUS", until=None).since == start + STEP


def test_repeats_within_three_minutes_count_up_and_later_ones_get_a_row(start):
    one = factories.instance()
    times = [start + timedelta(seconds=s) for s in (0, 120, 290, 480)]
    for n, at in enumerate(times):
        with clock.virtual(at):
            node(one, at, n + 1, xid(at, n + 1))
    rows = HealthEvent.objects.filter(instance=one).order_by("at").values_list("count", "at", "last_at")
    assert list(rows) == [(3, times[0], times[2]), (1, times[3], times[3])]


def test_events_that_say_something_else_keep_their_own_row(start):
    one = factories.instance()
    with clock.virtual(start):
        node(one, start, 1, xid(start, 1, pid=7), xid(start, 2, pid=8), xid(start, 3, pid=8))
    assert sorted(HealthEvent.objects.values_list("count", flat=True)) == [1, 2]


def test_an_event_with_a_name_of_its_own_is_stored_once(start):
    one = factories.instance()
    for n in range(3):
        event = Event(start, "AWS_HEALTH_EVENT", "aws-health", attrs={"id": "e-1"})
        record.record(one, "ec2", start + n * STEP, [reading("OK")], [event])
    assert HealthEvent.objects.get(instance=one).count == 1


def test_old_events_are_kept_and_wake_nobody(start):
    one = factories.instance()
    node(one, clock.now() - STEP, 1)
    node(one, clock.now() - STEP / 2, 2)
    Instance.objects.filter(pk=one.pk).update(evidence_at=None)
    assert node(one, clock.now(), 3, xid(start, 1)) is False
    assert HealthEvent.objects.get(instance=one).backlog
    one.refresh_from_db()
    assert one.evidence_at is None


def test_one_instances_nonsense_does_not_harm_the_others(start):
    good, bad = factories.instance(), factories.instance()
    odd = Reading(
        "EC2_SYSTEM", float("nan"), "ec2\x00" * 9, start, start, attrs={"text": "a\x00\ud800", "n": float("inf")}
    )
    broken = object()
    items = [
        record.Item(bad, [odd], [Event(start, "X" * 500, "s" * 99, text="\x00\udfff", attrs={"k": {1, "a"}})]),
        record.Item(good, [reading("OK")]),
        record.Item(factories.instance(), [broken], []),
    ]
    outcomes = record.record_many("ec2", start, items)
    assert outcomes[good.pk].changed and outcomes[bad.pk].changed
    assert [o.failed for o in outcomes.values()].count(True) == 1
    assert Interval.objects.get(instance=good).value == "OK"
    assert "\x00" not in HealthEvent.objects.get(instance=bad).text


def test_an_unchanged_round_costs_the_same_for_any_number_of_instances(start):
    fleet = [factories.instance() for _ in range(30)]

    def round_of(n, members):
        record.record_many("ec2", start + n * STEP, [record.Item(i, [reading("OK")]) for i in members])

    for n in range(2):
        round_of(n, fleet)
    counts = []
    for n, members in ((2, fleet[:3]), (3, fleet)):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            round_of(n, members)
        counts.append(len([q for q in queries if "SAVEPOINT" not in q["sql"]]))
    assert counts == [2, 2]  # lock the heads, move them


def test_the_cheap_confirmation_refuses_whatever_is_not_the_same_again(start):
    one = factories.instance(node_seen_at=None)
    Gpu.objects.create(account=one.account, region=one.region, uuid="GPU-1", instance=one)
    told = [reading("ok", "NVML", "nvml")]
    for n in (1, 2):
        record.record_many("node", start + n * STEP, [record.Item(one, told, [], "boot-a", n)])
    same = heads.digest_of(told)
    later = start + 3 * STEP

    def confirm(at, digest, boot_id, seq):
        return unchanged.confirm(one, "node", at, digest, boot_id=boot_id, seq=seq, received=at, measured={"GPU-1": {}})

    assert confirm(later, same, "boot-a", 2) is None  # told before
    assert confirm(later, same, "boot-b", 3) is None  # another boot
    assert confirm(later, heads.digest_of([]), "boot-a", 3) is None
    assert confirm(later + timedelta(hours=1), same, "boot-a", 3) is None  # a gap
    one.refresh_from_db()
    assert one.node_seen_at is None and Gpu.objects.get().measured_at is None, "what is refused writes nothing"
    assert confirm(later, same, "boot-a", 3) == 1
    one.refresh_from_db()
    assert one.node_seen_at == Gpu.objects.get().measured_at == later
    other = factories.instance(node_seen_at=None)
    assert unchanged.confirm(other, "node", later, same, boot_id="boot-a", seq=3, received=later) is None
    head = Head.objects.get(instance=one)
    assert (head.last_at, head.seq, head.count) == (later, 3, 3)

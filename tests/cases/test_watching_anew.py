"""After a start, a gap, a jump of the clock or another database: full rounds first, and the backlog is not acted on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case
from healthboard.diagnosis.signals import Event, Reading
from healthboard.fleet import gaps, record, seeing
from healthboard.fleet.models import Head, HealthEvent, Interval, Pulse, Source
from healthboard.people.actors import POLICY
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Repair
from tests import factories
from tests.cases import scene
from workers import pulse
from workers.collect import sources
from workers.decide import tasks as decide
from workers.repair import engine, watch
from workers.repair.run import Run

pytestmark = pytest.mark.django_db


def sweeps() -> None:
    """What both stages do at each tick before they act."""
    gaps.notice()
    pulse.beat("decide")
    watch.look()
    pulse.beat("repair")


def a_round(time, names=("ec2", "ecs", "autoscaling")) -> None:
    time.turn(6)
    for name in names:
        sources.claim(factories.account(), factories.REGION, name).good(calls=1)


def times_watched() -> int:
    return AuditRow.objects.filter(verb="watch.anew").count()


@pytest.fixture
def machine(time):
    scene.acting()
    scene.seeing()
    sweeps()
    return scene.machine()


def blind(machine) -> list[str]:
    return seeing.why_blind(machine, clock.now())


def keep_telling(time, seconds: float) -> None:
    """The collectors go on while the other stages stand still."""
    time.turn(seconds)
    Source.objects.update(succeeded_at=clock.now(), attempted_at=clock.now())


def test_a_short_pause_is_none(time, machine):
    keep_telling(time, gaps.STILL.total_seconds() - 1)
    sweeps()
    assert blind(machine) == [] and times_watched() == 0


@pytest.mark.parametrize("seconds", [200, 3600, 86400])
def test_after_a_gap_or_a_jump_ahead_full_rounds_come_first(time, machine, seconds):
    keep_telling(time, seconds)
    sweeps()
    assert times_watched() == 1
    assert len(blind(machine)) == 2 and "watched first" in blind(machine)[0]
    sweeps()
    assert times_watched() == 1, "each gap is noticed once"
    a_round(time)
    sweeps()
    assert blind(machine)
    a_round(time)
    sweeps()
    assert blind(machine) == [] and seeing.why_watching(machine) == "" and times_watched() == 1


def test_a_round_that_began_before_does_not_count(time, machine):
    keep_telling(time, 3600)
    time.turn(60)
    under_way = [sources.claim(factories.account(), factories.REGION, name) for name in ("ec2", "ecs")]
    time.turn(5)
    sweeps()
    time.turn(5)
    for claim in under_way:
        claim.good(calls=1)
    assert set(Source.objects.filter(name__in=["ec2", "ecs"]).values_list("good_rounds", flat=True)) == {0}


def test_a_clock_that_is_set_back_is_noticed_and_holds_nobody_up(time, machine):
    repair = factories.repair(machine, lease_until=clock.now() + timedelta(seconds=50), next_at=clock.now())
    time.turn(-7200)
    assert len(blind(machine)) == 2, "a word from the future is none"
    sweeps()
    assert times_watched() == 1 and blind(machine)
    repair.refresh_from_db()
    assert repair.next_at == clock.now() and repair.lease_until == clock.now(), "not in two hours"
    a_round(time)  # a claim from the future holds nobody up either
    a_round(time)
    assert blind(machine) == []


def test_another_database_is_noticed_once(time, machine, monkeypatch):
    assert times_watched() == 0, "the first one that is seen is no other"
    monkeypatch.setattr(gaps, "database", lambda: "another")
    sweeps()
    sweeps()
    assert times_watched() == 1 and blind(machine)


def test_a_repair_under_way_waits_and_goes_on_afterwards(time, machine):
    with transaction.atomic():
        row = lifecycle.open_repair(instance=machine, action="REPLACE", actor=POLICY, values={}, not_before=clock.now())
    held = lifecycle.claim(row.pk, "host:1")
    assert lifecycle.start(held, "drain") is None
    gaps.begin("for this test")
    found = engine._blocked(Run(held))  # before it looks at AWS, which this test does not have
    assert "watched first" in found.why
    a_round(time)
    a_round(time)
    assert seeing.why_watching(machine) == ""


def test_a_message_that_comes_before_any_sweep_notices_the_gap_as_well(time, machine):
    keep_telling(time, 3600)
    engine.advance(12345)
    assert times_watched() == 1
    keep_telling(time, 3600)
    sweeps()
    keep_telling(time, 3600)
    decide.read_instance(machine.pk)
    assert times_watched() == 3


def old(machines, count: int) -> int:
    """`count` events of clear failures, 10 to 60 minutes old, as nodes send them when the server is back."""
    now, each = clock.now(), count // len(machines)
    items = []
    for machine in machines:
        events = [
            Event(
                now - timedelta(seconds=600 + 3000 * number / each), "XID_79", "kernel", f"GPU-{machine.pk}-{number % 8}",
                text="NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.", boot_id=machine.boot_id, seq=number,
            )
            for number in range(each)
        ]  # fmt: skip
        items.append(record.Item(machine, (), events, machine.boot_id, 1))
    record.record_many("node", now, items)
    return HealthEvent.objects.count()


def test_ten_thousand_old_events_open_no_case_and_a_fresh_one_does(time, machine):
    machines = [machine, *(scene.machine() for _ in range(49))]
    time.turn(3600)
    assert old(machines, 10_000) >= 400, "alike ones count up in one row"
    decide.sweep()
    assert not Case.objects.exists() and not Repair.objects.exists()
    assert set(HealthEvent.objects.values_list("backlog", flat=True)) == {True}
    scene.shows(machine, "XID_119", 1)
    assert scene.read(machine).state == "WAITING"


def test_what_is_old_when_it_arrives_is_backlog_where_nobody_stood_still_either(time, machine):
    old([machine], 8)
    decide.sweep()
    assert times_watched() == 0 and not Case.objects.exists()
    assert set(HealthEvent.objects.values_list("backlog", flat=True)) == {True}


def test_what_arrived_while_nobody_read_is_backlog_once_it_is_old(time, machine):
    other = scene.machine()
    scene.read(machine), scene.read(other)
    time.turn(30)
    scene.shows(machine, "XID_119", 1)
    time.turn(3600)
    scene.shows(other, "XID_119", 30)
    record.touch([machine.pk, other.pk])
    decide.sweep()
    assert [case.instance for case in Case.objects.all()] == [other], "one is an hour old"
    assert HealthEvent.objects.get(instance=machine).backlog


def test_what_is_told_after_the_clock_was_set_back_is_newer_than_what_was_told_before(time, machine):
    def told() -> record.Outcome:
        status = Reading("EC2_INSTANCE", "ok", "ec2", clock.now(), clock.now())
        return record.record_many("ec2", clock.now(), [record.Item(machine, [status])])[machine.pk]

    keep_telling(time, 7200)
    sweeps()
    told()
    scene.shows(machine, "XID_119", 1)
    time.turn(-7200)
    sweeps()
    assert not Interval.objects.filter(since__gt=clock.now()).exists()
    assert HealthEvent.objects.get().received_at == clock.now(), "it is no secret for two hours"
    time.turn(5)
    assert not told().duplicate and Head.objects.get(channel="ec2").last_at == clock.now()


def test_a_span_counts_from_the_last_jump(time, machine):
    begun = clock.now()
    time.turn(60)
    assert gaps.counted_from(begun) == begun
    keep_telling(time, 7200)
    sweeps()
    assert gaps.counted_from(begun) == clock.now(), "what seemed to pass was not watched"
    time.turn(30)
    assert gaps.counted_from(begun) == clock.now() - timedelta(seconds=30)
    time.turn(-7000)
    sweeps()
    assert gaps.counted_from(clock.now() + timedelta(hours=1)) == clock.now(), "it is not waited for"


@pytest.mark.parametrize("ahead", [0.00002, 1, 170])
def test_of_a_span_whose_beginning_aws_told_a_little_ahead_nothing_is_over(time, machine, ahead):
    """AWS's clock and ours differ, and it rounds: without this a task that was told to stop just now would seem to have
    been stopping since all is watched."""
    keep_telling(time, 7200)
    sweeps()
    time.turn(60)
    assert gaps.counted_from(clock.now() - timedelta(seconds=90)) == clock.now() - timedelta(seconds=60)
    assert gaps.counted_from(clock.now() + timedelta(seconds=ahead)) == clock.now()


def test_a_start_is_watched(db):
    from django.core.management import call_command

    scene.seeing()
    call_command("setup")
    assert set(Source.objects.values_list("good_rounds", flat=True)) == {0}
    assert Pulse.objects.get(name="watch").at <= clock.now()

"""Many at once, through the database: one case for what they have in common, and no repair."""

from __future__ import annotations

import pytest

from healthboard import clock
from healthboard.cases.models import Case
from healthboard.diagnosis.signals import Verdict
from healthboard.fleet.models import Instance, Pool
from healthboard.notices.models import Notice
from healthboard.refusals import Held, Invalid
from healthboard.repairs import brakes
from healthboard.repairs.models import Breaker, Repair
from tests import factories, two
from tests.cases import scene
from workers.decide import breadth
from workers.repair import engine
from workers.repair.run import Run

pytestmark = pytest.mark.django_db
ZONE = "eu-west-1a"


def fleet(count: int, **fields) -> list[Instance]:
    home = factories.pool("solo", "TEMPLATE")
    return [scene.machine(home, **fields) for _ in range(count)]


def show(some: list[Instance], code: str, seconds: float = 60) -> None:
    for on in some:
        scene.shows(on, code, seconds)


def storm() -> Case:
    breadth.look()
    breadth.look()
    return Case.objects.get()


def away(on: Instance, seconds: float = 400) -> None:
    """Its agent is away, which ECS told again and again."""
    for name, value in (("AGENT_CONNECTIVITY", "IMPAIRED"), ("ECS_STATUS", "ACTIVE")):
        factories.reading(on, name, value, channel="ecs", since=factories.ago(seconds), count=60)


def test_nothing_starts_by_itself_before_all_cases_were_compared(time):
    scene.acting()
    scene.seeing()
    run = Run(factories.repair(scene.machine(), state="SCHEDULED", automatic=True, opened_at=clock.now()))
    time.turn(2)
    breadth.look()
    assert "a look at all instances" in engine._may_start(run).why, "one that came too soon after is none"
    time.turn(6)
    breadth.look()
    assert engine._may_start(run) is None


def test_a_storm_of_45_is_one_case_that_holds_nothing(time, operator):
    scene.acting()
    bad, fine = fleet(77), fleet(3)
    show(bad, "XID_45")
    case = storm()
    assert (case.verdict, case.state, case.mode, case.code) == ("CORRELATED", "OBSERVED", "observe", "XID_45")
    assert len(case.victims) == 77 and case.pool == bad[0].pool and "77 instances" in case.title
    assert (Repair.objects.count(), Breaker.objects.count(), Notice.objects.count()) == (0, 0, 1)
    show(fine[:1], "XID_45", 1)
    assert len(storm().victims) == 78 and Notice.objects.get().count == 1
    with pytest.raises(Held):
        scene.decided(case, by=operator)
    with pytest.raises(Invalid):
        two.release_case(case.pk, actor=operator, reason="enough")


def test_a_storm_lasts_as_long_as_one_of_it_goes_on_and_then_closes_by_itself(time):
    some = fleet(12)
    show(some, "XID_45")
    first = storm()
    time.turn(500)
    show(some[:1], "XID_45", 1)
    time.turn(300)
    assert storm().state == "OBSERVED"  # the others are silent for more than ten minutes, one is not
    time.turn(400)
    closed = storm()
    assert (closed.pk, closed.state, closed.resolution) == (first.pk, "CLOSED", "CLEARED")
    show(some, "XID_45", 1)
    breadth.look()
    assert Case.objects.exclude(pk=first.pk).get().state == "OBSERVED"


def test_a_driver_roll_out_after_which_all_report_31_is_one_case(time):
    new, _ = fleet(40, driver_version="610.48.02"), fleet(20, driver_version="580.142")
    show(new, "XID_31")
    case = storm()
    assert (case.code, case.plan["scope"], len(case.victims)) == ("XID_31", ["driver", "610.48.02"], 40)
    assert "610.48.02" in case.title and Repair.objects.count() == 0


def test_heat_on_many_nodes_is_one_case(time):
    some = fleet(12)
    hot = {"verdict": Verdict.WATCH, "verdict_code": "GPU_HW_THERMAL_SLOWDOWN", "verdict_since": factories.ago(60)}
    Instance.objects.filter(pk__in=[on.pk for on in some[:9]]).update(**hot)
    breadth.look()
    assert Case.objects.count() == 0
    Instance.objects.update(**hot)
    assert storm().code == "GPU_HW_THERMAL_SLOWDOWN"


def test_one_jobs_clean_up_on_all_its_nodes_is_no_storm(time):
    some = fleet(12)
    show(some, "XID_45")
    for on in some:
        factories.task(on, job="job-1")
    breadth.look()
    assert Case.objects.count() == 0


def test_a_zones_power_loss_is_one_case_that_holds_them_all(time):
    scene.acting()
    scene.seeing()
    scene.policy(dead_host="auto")
    dead, fine = fleet(9, zone=ZONE), fleet(12, zone="eu-west-1b")
    for on in dead:
        factories.reading(on, "EC2_SYSTEM", "IMPAIRED", since=factories.ago(120), count=10)
        away(on)
        assert scene.read(on).state == "DECIDED"  # each by itself would be repaired
    breadth.look()
    breadth.look()
    group = Case.objects.get(instance=None)
    assert (group.verdict, group.state, group.breaker.scope) == ("CORRELATED", "WAITING", ZONE)
    assert set(group.members.values_list("state", flat=True)) == {"HELD"} and group.members.count() == 9
    assert set(Repair.objects.values_list("state", flat=True)) == {"CANCELLED"}
    assert not Case.objects.filter(instance__in=fine).exists()


@pytest.mark.parametrize("announced", ["a notice", "a roll-out", ""])
def test_what_was_announced_is_no_storm(time, announced):
    scene.seeing()
    some = fleet(10)
    for on in some:
        away(on)
        if announced == "a notice":
            factories.event(on, "CAPACITY_BLOCK_ENDING", source="ec2", text="Capacity Block")
        assert scene.read(on).code == "ECS_AGENT_DISCONNECTED"
    if announced == "a roll-out":
        Pool.objects.update(rolling_out=True)
    breadth.look()
    assert Case.objects.filter(instance=None).count() == (0 if announced else 1)


def test_what_was_released_is_not_held_again_but_later_cases_are(time, admin):
    scene.acting()
    some = [scene.asked(home=factories.pool("solo", "TEMPLATE")) for _ in range(5)]
    breadth.look()
    group = Case.objects.get(instance=None)
    two.release_case(group.pk, actor=admin, reason="the driver is fixed")
    time.turn(20)
    breadth.look()
    assert {Case.objects.get(pk=c.pk).state for c in some} == {"WAITING"}
    later = [scene.asked(home=some[0].pool) for _ in range(5)]
    breadth.look()
    assert {Case.objects.get(pk=c.pk).state for c in later} == {"HELD"}
    assert {Case.objects.get(pk=c.pk).state for c in some} == {"WAITING"}


def test_a_storm_that_spreads_stays_one_case_and_holds_both_scopes(time, admin):
    scene.acting()
    others = [scene.machine(factories.pool("other", "TEMPLATE"), zone=ZONE) for _ in range(6)]
    here = [scene.asked(home=factories.pool("solo", "TEMPLATE"), zone=ZONE) for _ in range(5)]
    breadth.look()
    group = Case.objects.get(instance=None)
    first = group.breaker
    assert (first.scope_kind, first.scope) == ("pool", "solo")
    assert group.title.startswith("5 instances of pool solo")
    time.turn(60)
    show(others, "XID_119", 5)
    there = [scene.read(on) for on in others]
    assert {case.state for case in there} == {"WAITING"}
    breadth.look()
    breadth.look()
    group.refresh_from_db()
    assert Case.objects.get(instance=None) == group and group.breaker == first
    assert {Case.objects.get(pk=c.pk).parent for c in (*here, *there)} == {group}
    also = Breaker.objects.exclude(pk=first.pk).get()
    assert group.title.startswith("11 instances of pool solo") and also.where in group.title
    assert [one["id"] for one in group.plan["also"]] == [also.pk] and also.released_at is None
    assert Notice.objects.filter(key=f"correlated-{group.pk}-{also.pk}").get().count == 1
    late = scene.machine(others[0].pool, zone=ZONE)
    show([late], "XID_119", 5)
    late = scene.read(late)
    assert (late.state, late.parent) == ("HELD", group), "what fails there now is held at once"
    two.release_case(group.pk, actor=admin, reason="the driver is fixed")
    assert not Breaker.objects.filter(released_at=None).exists(), "one release for all that it holds"
    breadth.look()
    assert {Case.objects.get(pk=c.pk).state for c in (*here, *there)} == {"WAITING"}


def test_a_zone_that_aws_calls_in_trouble_is_held_by_its_word(time, admin):
    scene.acting()
    scene.seeing()
    some, other = fleet(3, zone=ZONE), fleet(1, zone="eu-west-1b")[0]
    early = some[0]
    scene.shows(early, "XID_79")
    scene.lost(early, "")
    case = scene.read(early)
    for on in some:
        factories.event(on, "AWS_HEALTH_EVENT", source="aws-health", text="loss of power", attrs={"topic": "issue"})
        scene.read(on)
        assert Instance.objects.get(pk=on.pk).verdict == "CORRELATED"
    breadth.look()
    breadth.look()
    group = Case.objects.get(instance=None)
    assert (group.code, group.breaker.scope, group.victims) == (
        "AWS_HEALTH_EVENT", ZONE, sorted(on.instance_id for on in some),
    )  # fmt: skip
    case.refresh_from_db()
    assert (case.state, case.parent) == ("HELD", group) and not brakes.breakers_for(other, [])
    time.turn(60)
    two.release_case(group.pk, actor=admin, reason="power is back")
    breadth.look()
    assert Case.objects.filter(instance=None).count() == 1
    time.turn(30)
    factories.event(some[1], "AWS_HEALTH_EVENT", source="aws-health", attrs={"topic": "issue"}, at=factories.ago(1))
    breadth.look()
    assert Case.objects.filter(instance=None).latest("pk").victims == [some[1].instance_id]


def test_a_look_of_long_ago_starts_nothing(time):
    scene.acting()
    scene.seeing()
    run = Run(factories.repair(scene.machine(), state="SCHEDULED", automatic=True, opened_at=clock.now()))
    time.turn(60)
    breadth.look()
    time.turn(3600)  # it waited for its window, and nobody compared anything meanwhile
    scene.seeing()
    assert "a look at all instances" in engine._may_start(run).why
    breadth.look()
    assert engine._may_start(run) is None

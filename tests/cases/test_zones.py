"""Zones in trouble: what speaks against one, for how long, and for which type."""

from __future__ import annotations

import pytest

from healthboard.repairs import launches, zones
from healthboard.repairs.models import Launch
from tests import factories
from tests.cases import scene
from tests.cases.test_evidence import broken

pytestmark = pytest.mark.usefixtures("time")
A, B = "us-east-1a", "us-east-1b"


def trouble(zone: str = A, type_: str = "p5.48xlarge") -> str:
    return zones.trouble(factories.account(), factories.REGION, zone, type_)


def refused(zone: str = A):
    row = factories.repair(scene.machine())
    launches.note(row, Launch.Outcome.NO_CAPACITY, zone=zone, why="none left")
    return row


def many(count: int, zone: str = A, of: int = 0):
    rows = [scene.machine(zone=zone) for _ in range(count)]
    for _ in range(of - count):
        scene.machine(zone=zone)
    return rows


def test_nothing_is_held_against_a_zone_at_first():
    many(3)
    assert trouble() == "" and trouble("") == ""


def test_capacity_that_was_refused_speaks_against_its_zone_and_type_for_a_while(time):
    refused()
    assert "no capacity for p5.48xlarge" in trouble()
    assert trouble(B) == "" and trouble(type_="g6e.12xlarge") == ""
    time.turn(max(zones.RECENT.total_seconds() / 10, zones.LEAST.total_seconds()) + 1)
    assert trouble() == ""


def test_a_launch_that_serves_there_ends_it(time):
    row = refused()
    time.turn(5)
    launches.note(row, Launch.Outcome.SERVED, zone=A)
    assert trouble() == ""


def test_two_replacements_that_never_served_speak_against_a_zone(time):
    for number, wanted in ((1, ""), (2, "2 launches")):
        launches.note(factories.repair(scene.machine()), Launch.Outcome.FAILED, zone=A, why="never registered")
        assert wanted in trouble() and bool(trouble()) == (number == 2)


@pytest.mark.parametrize(("bad", "size", "held"), [(2, 4, False), (3, 12, True), (3, 13, False), (4, 13, True)])
def test_many_impaired_speak_against_a_zone(bad, size, held):
    for on in many(bad, of=size):
        factories.reading(on, "EC2_SYSTEM", "IMPAIRED")
    assert bool(trouble()) is held and trouble(B) == ""


def test_health_events_and_announced_ends_count_as_well():
    first, second, third = many(3)
    factories.reading(first, "EC2_SCHEDULED_EVENT", "instance-stop")
    factories.event(second, "AWS_HEALTH_EVENT", source="aws-health", attrs={"topic": "issue"})
    factories.reading(third, "EC2_SCHEDULED_EVENT", None)
    assert trouble() == "", "two of three, and one without an event"
    factories.reading(third, "EC2_SYSTEM", "IMPAIRED", channel="other")
    assert "3 of its 3" in trouble()


def test_an_open_breaker_of_the_zone_speaks_against_it():
    row = factories.breaker(A, scope_kind="zone")
    assert "breaker" in trouble()
    row.released_at = factories.ago(1)
    row.save()
    assert trouble() == ""


@pytest.mark.parametrize("short", [A, B])
def test_the_plan_says_so(short):
    refused(short)
    case = scene.read(broken(scene.machine(zone=A)))
    assert case.action == "REPLACE"
    warned = [w for w in case.plan["warnings"] if "in trouble" in w]
    assert len(warned) == (1 if short == A else 0)

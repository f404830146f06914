"""What limits repairs apart from how many are out: per hour, one zone at a time, and a floor of what serves."""

from __future__ import annotations

import pytest

from healthboard.repairs import lifecycle
from healthboard.repairs.models import Repair
from healthboard.repairs.states import State
from tests import factories
from tests.cases import scene

pytestmark = pytest.mark.usefixtures("time")
A, B = "us-east-1a", "us-east-1b"


@pytest.fixture
def machines():
    """Twenty of one pool, ten in each of two zones."""
    scene.acting()
    return [scene.machine(zone=A if number < 10 else B) for number in range(20)]


def started(on, **values) -> str | None:
    """None where its repair starts, else why not."""
    held = lifecycle.claim(
        factories.repair(on, state="SCHEDULED", settings={"budget_share": 0.5, **values}).pk, "host:1"
    )
    return lifecycle.start(held, "drain")


def over(on) -> None:
    row = Repair.objects.get(instance=on, closed_at=None)
    lifecycle.finish(row, State.SUCCEEDED, "REPLACED", "done")


def test_without_a_limit_they_start_as_the_budget_allows(machines):
    assert [started(on) for on in (machines[0], machines[1], machines[10])] == [None, None, None]


def test_repairs_per_hour_count_also_when_the_earlier_ones_are_over(machines, time):
    first, second, third = machines[:3]
    assert started(first, repairs_per_hour=2) is None and started(second, repairs_per_hour=2) is None
    over(first), over(second)
    assert "2 are allowed" in started(third, repairs_per_hour=2)
    time.turn(3601)
    Repair.objects.filter(instance=third).update(next_at=factories.ago(1), lease_until=None)
    held = lifecycle.claim(Repair.objects.get(instance=third).pk, "host:1")
    assert lifecycle.start(held, "drain") is None, "held back, not refused"


def test_one_zone_at_a_time(machines):
    here, beside, there = machines[0], machines[1], machines[10]
    assert started(here, one_zone_at_a_time=True) is None
    assert started(beside, one_zone_at_a_time=True) is None
    assert A in started(there, one_zone_at_a_time=True)
    over(here), over(beside)
    Repair.objects.filter(instance=there).update(lease_until=None)
    held = lifecycle.claim(Repair.objects.get(instance=there).pk, "host:1")
    assert lifecycle.start(held, "drain") is None


def test_the_floor_is_kept_whatever_the_share_allows(machines):
    assert started(machines[0], minimum_healthy=19) is None
    assert started(machines[1], minimum_healthy=19) is not None


def test_members_that_are_missing_altogether_do_not_lower_the_floor(db):
    scene.acting()
    home = factories.pool("train", desired=20)
    machines = [factories.instance(home) for _ in range(12)]  # the group cannot launch the other eight
    assert "12 instances of train serve, and 12 must stay" in started(machines[0], minimum_healthy=12)
    assert started(machines[1], minimum_healthy=11) is None


def test_what_is_out_already_may_be_repaired_at_the_floor(machines):
    out = machines[0]
    type(out).objects.filter(pk=out.pk).update(agent_connected=False)
    out.refresh_from_db()
    assert started(out, minimum_healthy=19) is None

"""Nothing is begun on a machine that Spot or its Capacity Block takes away before it would be done."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.fleet.ending import why_ending
from healthboard.fleet.models import HealthEvent
from tests import factories


def test_a_repair_that_is_scheduled_waits_while_spot_takes_the_machine_back(drive):
    one = drive.machine("solo")
    drive.inject(one, "XID_79", 3)
    drive.opened(one)
    drive.inject(one, "EC2_SPOT_INTERRUPTION")
    drive.due["events"] = 0.0
    drive.until(lambda: (r := drive.repair(one)) is not None and "goes away by itself" in r.why_waiting, within=60)
    drive.steps(10, 2)
    assert not drive.calls(one)
    HealthEvent.objects.filter(code="EC2_SPOT_INTERRUPTION").update(at=clock.now() - timedelta(hours=1))  # not taken
    drive.until(lambda: drive.calls(one), within=60)
    drive.sound()


@pytest.mark.django_db
def test_what_is_announced_holds_until_it_has_happened():
    row, now = factories.instance(), clock.now()
    assert why_ending(row, now) == ""
    event = HealthEvent.objects.create(
        instance=row, source="ec2", code="CAPACITY_BLOCK_ENDING", at=now, last_at=now, received_at=now,
        attrs={"ends": (now + timedelta(minutes=40)).isoformat()},
    )  # fmt: skip
    assert "CAPACITY_BLOCK_ENDING" in why_ending(row, now + timedelta(minutes=39))
    assert why_ending(row, now + timedelta(minutes=51)) == ""
    event.code, event.attrs = "EC2_SPOT_INTERRUPTION", {}
    event.save()
    assert why_ending(row, now + timedelta(minutes=9)) and why_ending(row, now + timedelta(minutes=11)) == ""
    event.code = "EC2_REBALANCE"
    event.save()
    assert why_ending(row, now) == "", "a higher risk is no end"

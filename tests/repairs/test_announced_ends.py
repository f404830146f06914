"""Nothing is begun on a machine that Spot or its Capacity Block takes away before it would be done."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.fleet.ending import why_ending
from healthboard.fleet.models import HealthEvent
from tests import factories


def test_a_repair_waits_while_spot_takes_the_machine_back(drive):
    one = drive.machine("solo")
    drive.inject(one, "EC2_SPOT_INTERRUPTION")
    drive.until(lambda: HealthEvent.objects.filter(instance=drive.row(one), code="EC2_SPOT_INTERRUPTION").exists())
    drive.inject(one, "XID_79", 3)
    drive.opened(one)
    drive.until(lambda: (r := drive.repair(one)) is not None and "Spot takes it back" in r.why_waiting, within=60)
    assert drive.calls(one) == {}
    HealthEvent.objects.update(last_at=clock.now() - timedelta(hours=1))  # it was not taken
    drive.until(lambda: drive.calls(one), within=60)
    drive.sound()


@pytest.mark.django_db
@pytest.mark.parametrize("code, words", [("EC2_SPOT_INTERRUPTION", "Spot"), ("CAPACITY_BLOCK_ENDING", "Block ends")])
def test_what_is_announced_holds_until_it_has_happened(code, words):
    row, now = factories.instance(), clock.now()
    assert why_ending(row, now) == ""
    event = HealthEvent.objects.create(
        instance=row, source="ec2", code=code, at=now, last_at=now, received_at=now, attrs={}
    )
    assert words in why_ending(row, now + timedelta(seconds=30))
    assert why_ending(row, now + timedelta(minutes=46)) == ""
    event.attrs = {"ends": (now + timedelta(seconds=20)).isoformat()}
    event.save()
    assert words in why_ending(row, now) and why_ending(row, now + timedelta(seconds=30)) == ""

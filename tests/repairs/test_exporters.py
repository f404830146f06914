"""A repair where the nodes have exporters: they fall silent on the drain and come back, and block nothing."""

from __future__ import annotations

import pytest

from healthboard.fleet.models import Interval, Source
from tests.sandbox.conftest import REGION
from workers.collect import exporters, store
from workers.collect.exporters import DRAINED


@pytest.fixture
def solo(db, drives):
    """Three machines of a launch template, whose exporters are read as often as AWS is."""
    made = drives("solo=template:3")
    made.fleet.engine.exporters.start()
    made.due["exporters"] = 0.0

    def scrape():
        if made._turn("exporters", 10.0):
            made.fleet.engine.exporters.look()
            Source.objects.filter(name="dcgm").update(attempted_at=None)
            exporters.collect(store.account_of(made.account.account_id), REGION)

    made.hands.append(scrape)
    return made


def test_a_drained_machines_exporter_is_missed_by_nobody_and_its_reboot_is_good(solo):
    machine = solo.machine("solo")
    solo.steps(2, 10)
    solo.inject(machine, "XID_95", 1)
    case = solo.opened(machine)
    assert case.code == "XID_95"
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REBOOTED")
    told = Interval.objects.filter(instance=solo.row(machine), source="dcgm")
    assert 95 in told.filter(name="XID_LAST").values_list("value", flat=True)
    gaps = told.filter(name="GAP", observations__gt=0)
    assert {(gap.value, gap.attrs.get("expected")) for gap in gaps} == {(DRAINED, True)}
    solo.until(lambda: told.filter(name="EXPORTER", until=None).exists(), 60)
    solo.until(lambda: solo.row(machine).verdict == "HEALTHY", 60)
    assert Source.objects.get(name="dcgm").error == ""
    solo.sound()

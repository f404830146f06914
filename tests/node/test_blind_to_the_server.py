"""A driver that hangs, from the real library through the real reporter and intake to the verdict: a blind spot, and what
it showed before acts no more."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.api import node_intake
from healthboard.api.node_schema import Report
from healthboard.policies.reading import reread
from tests import factories
from tests.collect.conftest import no_broker  # noqa: F401
from workers.node import healthboard_node as node

pytestmark = pytest.mark.django_db


def test_a_hung_driver_is_a_blind_spot_and_what_it_showed_acts_no_more(machine, probe):
    one = factories.instance(boot_id="", booted_at=None, gpus_expected=8)
    eye = probe(HEALTHBOARD_NVML_INIT_TIMEOUT="2", HEALTHBOARD_NVML_TIMEOUT="0.5")
    settings = node.Settings({**os.environ, **machine.env})
    (machine.path / "state").mkdir()
    inventory = node.Inventory(
        str(machine.path / "state/inventory.json"), node.machine_identity(settings.sysfs), settings.boot_id
    )
    begun = clock.now()
    machine.set(4, remap="0 9 0 1")
    seen = []
    for seq in range(1, 5):
        if seq == 4:
            machine.set(3, hang="nvmlDeviceGetRemappedRows")
        reading = eye.read()
        report = node.build_report(settings, seq, reading, inventory.complete(reading), [], False)
        with clock.virtual(begun + timedelta(seconds=15 * seq)):
            report["sent_at"] = clock.now().isoformat()
            node_intake.take(one, Report.model_validate(report))
            one.refresh_from_db()
            seen.append(reread(one).assessment)
    well, hung = seen[2], seen[3]
    assert (well.verdict, well.primary.code, well.may_act) == ("HARDWARE", "ROW_REMAP_FAILURE", True)
    assert (hung.verdict, hung.codes[0], hung.may_act) == ("UNKNOWN", "NVML_PROBE_HUNG", False)

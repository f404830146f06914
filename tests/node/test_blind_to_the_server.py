"""A driver that hangs or is slow, from the real library through the real reporter and intake to the verdict: a blind spot,
and what it showed before acts no more and is not told again."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("bad", [True, False])
def test_one_look_at_nvml_is_one_however_many_reports_the_kernel_lines_take(machine, bad):
    told = {"HEALTHBOARD_URL": "http://127.0.0.1:1", "HEALTHBOARD_NODE_TOKEN": "x"}
    one = factories.instance(boot_id="", booted_at=None, gpus_expected=8)
    begun, read = clock.now(), node.Reporter(node.Settings({**os.environ, **machine.env, **told}))
    if bad:
        machine.set(4, remap="0 9 0 1")

    def one_round(second):
        states = []
        noise = {"at": (begun + timedelta(seconds=second)).isoformat(), "facility": 0, "level": 6}
        first = 10_000 * second
        read.kmsg.pending.extend({**noise, "seq": first + n, "text": f"NVRM: noise {n}"} for n in range(1100))
        read.round()
        while line := read.spool.peek():
            read.spool.done(line[1])
            with clock.virtual(begun + timedelta(seconds=second, milliseconds=20 * len(states))):
                report = {**json.loads(line[0]), "sent_at": clock.now().isoformat()}
                node_intake.take(one, Report.model_validate(report))
            states.append((report["nvml"]["code"], len(report["kernel"]), len(report["gpus"])))
        one.refresh_from_db()
        with clock.virtual(begun + timedelta(seconds=second + 1)):
            return states, reread(one).assessment

    try:
        states, first = one_round(15)
        later = [(node.NOT_YET, 500, 0), (node.NOT_YET, 500, 0)] if bad else [(0, 500, 8)] * 2
        assert states == [*later, (0, 100, 8)], "what is well may be told with each"
        assert (first.codes, first.may_act) == (("ROW_REMAP_FAILURE",) if bad else (), False)
    finally:
        read.probe.close()


def test_a_bad_reading_is_not_told_again_where_the_driver_is_slow(machine, monkeypatch):
    """It was looked at once. What has not been read yet neither confirms the sign nor takes it away."""
    monkeypatch.setattr(node, "URGENT_WAIT_S", 0.3)
    told = {"HEALTHBOARD_URL": "http://127.0.0.1:1", "HEALTHBOARD_NODE_TOKEN": "x", "HEALTHBOARD_NVML_TIMEOUT": "9"}
    settings = node.Settings({**os.environ, **machine.env, **told})
    one = factories.instance(boot_id="", booted_at=None, gpus_expected=8)
    begun, read = clock.now(), node.Reporter(settings)
    seen = []

    def told_to_the_server(urgent=False):
        read.round(urgent)
        line, token = read.spool.peek()
        read.spool.done(token)
        with clock.virtual(begun + timedelta(seconds=15 * (len(seen) + 1))):
            report = {**json.loads(line), "sent_at": clock.now().isoformat()}
            node_intake.take(one, Report.model_validate(report))
            one.refresh_from_db()
            seen.append(reread(one).assessment)
        return report["nvml"]

    try:
        machine.set(4, remap="0 9 0 1")
        assert told_to_the_server()["state"] == "ok"
        mark = machine.mark()
        machine.set(0, hang="nvmlDeviceGetUUID")
        read.wake.set()
        slow = told_to_the_server(urgent=True)
        assert (slow["state"], slow["code"]) == ("hung", node.NOT_YET)
        assert not seen[0].may_act and not seen[1].may_act and seen[1].verdict != "HEALTHY"
        machine.reset(mark)
        read.wake.clear()
        read.probe.close()
        read.probe = node.NvmlProbe(settings)
        told_to_the_server()
        assert ("ROW_REMAP_FAILURE" in seen[2].codes, seen[2].may_act) == (True, False)
        told_to_the_server()
        assert (seen[3].verdict, seen[3].primary.code, seen[3].may_act) == ("HARDWARE", "ROW_REMAP_FAILURE", True)
    finally:
        read.probe.close()

"""What `inject --list` promises is what the product reads: each fault's evidence, through the real parsers, gives the
verdict and the action that the table names."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from healthboard.api.node_schema import Report
from healthboard.diagnosis import aws_events, ec2, ecs, node_report
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Context, Reading
from healthboard.sandbox.entities import Instance
from healthboard.sandbox.faults import FAULTS
from healthboard.sandbox.health import flags
from healthboard.sandbox.injure import clear, inject
from healthboard.sandbox.nodes.report import build
from tests.sandbox.conftest import Fleet


def assessed(fleet: Fleet, one: Instance):
    now = datetime.fromtimestamp(fleet.world.now(), UTC)
    events, readings = [], []
    if "silent" in flags(one):
        since = now - timedelta(seconds=60)
        readings.append(Reading("GAP", "no report", "node", since, now))
    else:
        report = json.loads(json.dumps(build(fleet.world, one, [])))
        Report.model_validate(report)
        told = node_report.read(report, received_at=now)
        events += told.events
        readings += told.readings
    if "no_exporter" in flags(one):
        readings.append(Reading("GAP", "Connection refused", "dcgm", now - timedelta(seconds=60), now))
    status = fleet.ec2.describe_instance_status(InstanceIds=[one.id], IncludeAllInstances=True)["InstanceStatuses"][0]
    row = fleet.ecs.describe_container_instances(
        cluster="gpu", containerInstances=[fleet.container(one).id], include=["CONTAINER_INSTANCE_HEALTH", "TAGS"]
    )["containerInstances"][0]
    for new_events, new_readings in (
        ec2.read_status(json.loads(json.dumps(status, default=str)), at=now),
        ecs.read_container_instance(json.loads(json.dumps(row, default=str)), at=now),
    ):
        events += new_events
        readings += new_readings
    for message in fleet.world.messages.values():
        told = json.loads(message.text)
        for read in (ecs.read_event, aws_events.read):
            found, _ = read(told)
            events += [event for event in found if event.instance == one.id]
    context = Context(
        instance=one.id,
        architecture="hopper",
        instance_type=one.type,
        expected_gpus=8,
        expected_uuids=tuple(c["uuid"] for c in one.gpus),
        boot_id=one.boot_id,
        booted_at=datetime.fromtimestamp(one.booted_at, UTC),
    )
    return evaluate(events, readings, now=now, context=context)


@pytest.mark.parametrize("code", list(FAULTS))
def test_the_evidence_of_a_code_is_read_as_its_table_row_says(fleet: Fleet, code):
    one, fault = fleet.pool("train")[0], FAULTS[code]
    inject(fleet.world, one, code, 3 if fault.on_gpu else None)
    fleet.advance(1)
    found = assessed(fleet, one)
    assert (str(found.verdict), str(found.action)) == (fault.verdict, fault.action), found.findings
    if fault.verdict == "HARDWARE" and fault.gpu and code != "ROW_REMAP_FAILURE":
        assert found.primary.gpu == one.gpus[3]["uuid"] and found.may_act, found.may_act_why


def test_a_fleet_without_faults_reads_as_healthy(fleet: Fleet):
    for pool in ("train", "infer", "solo"):
        one = fleet.pool(pool)[0]
        report = build(fleet.world, one, [])
        Report.model_validate(json.loads(json.dumps(report)))
    assert str(assessed(fleet, fleet.pool("train")[0]).verdict) == "HEALTHY"


@pytest.mark.parametrize("code", [c for c, f in FAULTS.items() if f.gpu or f.nvml])
def test_after_clearing_the_readings_show_nothing_any_more(fleet: Fleet, code):
    one = fleet.pool("train")[0]
    inject(fleet.world, one, code, 3)
    clear(fleet.world, one, code)
    one.kernel = [line for line in one.kernel if " to 0x0 (None)" in line["text"]]
    assert str(assessed(fleet, one).verdict) == "HEALTHY"

"""What the sandbox shows for each fault that can be injected leads to the verdict that its table promises."""

from datetime import timedelta

import pytest

from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.names import architecture_of_type
from healthboard.diagnosis.node_report import read
from healthboard.diagnosis.signals import Assessment, Context, Reading, Verdict
from healthboard.sandbox.faults import FAULTS
from tests.diagnosis.build import NOW, fine, reading
from tests.diagnosis.test_node_report import REPORT, gpu, report

START = NOW - timedelta(minutes=5)
SEEN_BY_NODE = [c for c, f in FAULTS.items() if f.lines or f.gpu or f.nvml]
FILL = {
    "pci": "0000:3b:00",
    "uuid": REPORT["gpus"][0]["uuid"],
    "serial": "1",
    "pid": 4242,
    "name": "python3",
    "index": 0,
}


def at(seconds):
    return START + timedelta(seconds=seconds)


def told(code, seconds, *, clear=False, before=False):
    """The node's report some seconds after the injection (or before it, or after it was taken away)."""
    fault = FAULTS[code]
    rows = gpu()
    if not before and not clear:
        for key, value in fault.gpu.items():
            merge = isinstance(value, dict) and isinstance(rows[0].get(key), dict)
            rows[0][key] = {**rows[0][key], **value} if merge else value
    lines = list(fault.lines) if not before else []
    stamped = [(0.1 * n, line) for n, line in enumerate(lines)] + [(60, line) for line in fault.clear_lines if clear]
    missing = rows[0]["status"] == "missing"
    return report(
        sent_at=at(seconds).isoformat(),
        uptime_s=3600.0 + seconds,
        gpu_count=0 if missing else 1,
        gpus=[] if missing else rows,
        nvml=dict(fault.nvml) if fault.nvml and not before and not clear else {"state": "ok", "code": 0},
        kernel=[
            {"seq": n, "at": at(second).isoformat(), "facility": 0, "text": line.format(**FILL)}
            for n, (second, line) in enumerate(stamped)
        ],
    )


def joined(reports) -> tuple[list, list[Reading]]:
    """As the collectors keep it: equal readings that follow each other are one interval."""
    events, rows = [], {}
    for one in reports:
        found = read(one, received_at=NOW)
        events += found.events
        for r in found.readings:
            row = rows.setdefault((r.name, r.gpu, r.source), [])
            if row and row[-1].value == r.value:
                old = row[-1]
                row[-1] = Reading(r.name, r.value, r.source, old.since, r.last, old.observations + 1, r.gpu, r.attrs)
            else:
                row.append(r)
    return events, [r for row in rows.values() for r in row]


def judge(code, *, until=15, instance_type="p5.48xlarge", clear=None) -> Assessment:
    steps = [told(code, -15, before=True), *(told(code, s) for s in range(1, until + 1, 15))]
    if clear:
        steps += [told(code, s, clear=True) for s in range(60, clear, 15)]
    events, readings = joined(steps)
    now = at(clear or until)
    aws = [r for r in fine(NVML=None, GPU_COUNT=None, BOOT_ID=None)]
    context = Context(instance="i-1", architecture=architecture_of_type(instance_type), expected_gpus=1)
    return evaluate(events, [*aws, *readings], now=now, context=context)


@pytest.mark.parametrize("instance_type", ["p5.48xlarge", "p4d.24xlarge", "g6e.12xlarge"])
@pytest.mark.parametrize("code", SEEN_BY_NODE)
def test_the_verdict_is_the_one_that_the_table_promises(code, instance_type):
    got = judge(code, instance_type=instance_type)
    assert (str(got.verdict), str(got.action)) == (FAULTS[code].verdict, FAULTS[code].action), got.why
    assert got.primary is None or got.primary.code == code or got.primary.gpu is None or code in got.codes


@pytest.mark.parametrize("code", [c for c in SEEN_BY_NODE if FAULTS[c].verdict == "HARDWARE"])
def test_a_hardware_fault_may_act_within_two_reports(code):
    got = judge(code, until=30)
    assert got.may_act and got.primary.code == code and got.decisive_codes == (code,)


@pytest.mark.parametrize("code", [c for c in SEEN_BY_NODE if FAULTS[c].verdict != "HARDWARE"])
def test_nothing_else_may_act(code):
    assert not judge(code, until=120).may_act


@pytest.mark.parametrize("code", [c for c in SEEN_BY_NODE if FAULTS[c].verdict == "HARDWARE"])
def test_a_fault_that_is_taken_away_no_longer_acts(code):
    got = judge(code, until=30, clear=180)
    assert not got.may_act
    if code != "XID_64":  # the line that says that no spare row is left has only the flag against it
        assert got.verdict not in (Verdict.HARDWARE, Verdict.AMBIGUOUS), (code, got.why)


AWS = {
    "EC2_SYSTEM_IMPAIRED": {
        "EC2_SYSTEM": reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=60, seen=2),
        "AGENT_CONNECTIVITY": reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=60, seen=2),
        "NVML": reading("NVML", "ok", since=900, last=300), "GPU_COUNT": None, "BOOT_ID": None,
    },
    "EC2_INSTANCE_IMPAIRED": {"EC2_INSTANCE": reading("EC2_INSTANCE", "IMPAIRED", "ec2", since=60, seen=2)},
    "EC2_EBS_IMPAIRED": {"EC2_ATTACHED_EBS": reading("EC2_ATTACHED_EBS", "IMPAIRED", "ec2", since=60, seen=2)},
    "EC2_EVENT_INSTANCE_RETIREMENT": {
        "event": reading("EC2_SCHEDULED_EVENT", "instance-retirement", "ec2", since=60, seen=2),
    },
    "ECS_AGENT_DISCONNECTED": {"AGENT_CONNECTIVITY": reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=60, seen=2)},
    "ECS_CONTAINER_RUNTIME_IMPAIRED": {"runtime": reading("CONTAINER_RUNTIME", "IMPAIRED", "ecs", since=60, seen=2)},
    "MONITORING_GAP": {"NVML": reading("NVML", "ok", since=900, last=300), "GPU_COUNT": None, "BOOT_ID": None},
}  # fmt: skip


@pytest.mark.parametrize("code", AWS)
def test_what_ec2_and_ecs_show_leads_to_the_promised_verdict(code):
    got = evaluate([], fine(**AWS[code]), now=NOW, context=Context(instance="i-1", expected_gpus=8))
    assert (str(got.verdict), str(got.action), got.primary.code) == (FAULTS[code].verdict, FAULTS[code].action, code)
    assert got.may_act is (FAULTS[code].verdict == "HARDWARE")

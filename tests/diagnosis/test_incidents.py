"""Whole incidents, rebuilt as many nodes whose evidence is read one by one and then compared."""

import json
from datetime import timedelta

import pytest

from healthboard.diagnosis import kernel_log
from healthboard.diagnosis.correlate import Subject, correlate
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Context, Event, Verdict
from tests.diagnosis.build import GPU, NOW, ago, fine, reading
from tests.diagnosis.score import SAMPLES

LINES = {
    31: "NVRM: Xid (PCI:0000:4a:00): 31, pid=51877, name=render{n}, channel 0x0000000e. MMU Fault: ENGINE GRAPHICS GPC5",
    45: "NVRM: Xid (PCI:0000:4a:00): 45, pid=100{n}, name=job{n}, channel 0x00000007",
    79: "NVRM: Xid (PCI:0000:4a:00): 79, GPU has fallen off the bus.",
    119: "NVRM: Xid (PCI:0000:4a:00): 119, pid=286640, name=nvidia-smi, Timeout waiting for RPC from GSP!",
}


def node(name, *, line=None, n=0, readings=None, seconds=60.0, events=(), **scopes):
    """One node read from its own evidence: (assessment, subject)."""
    jobs = (scopes.pop("job"),) if "job" in scopes else ()
    log = kernel_log.KernelLog(boot_id="b1")
    if line:
        log.feed(LINES[line].format(n=n), at=ago(seconds), seq=n + 1, facility=0)
    events = (*log.result().events, *events)
    readings = fine() if readings is None else readings
    got = evaluate(events, readings, now=NOW, context=Context(instance=name, expected_gpus=8))
    begun = min((f.first for f in got.findings if f.first), default=NOW)
    return got, Subject(name, begun, got.decisive_codes, {"pool": "train", **scopes}, jobs, got.codes)


def incident(nodes, **sizes):
    found = correlate(
        [s for _, s in nodes], now=NOW, sizes={tuple(k.split("=", 1)): n for k, n in sizes.pop("sizes").items()}
    )
    return found, {str(a.verdict) for a, _ in nodes}, [a for a, _ in nodes if a.may_act]


def test_a_driver_roll_out_is_one_incident_and_repairs_nothing():
    new = [node(f"i-{n}", line=31, n=n, driver="610.48.02") for n in range(40)]
    old = [node(f"i-{n}", driver="580.142") for n in range(40, 80)]
    (group,), _, acting = incident(new + old, sizes={"pool=train": 730, "driver=610.48.02": 40, "driver=580.142": 690})
    assert (group.kind, group.scope, group.code, acting) == ("CORRELATED", ("driver", "610.48.02"), "XID_31", [])


def test_a_wave_of_119_on_one_driver_is_one_incident():
    bad = [node(f"i-{n}", line=119, n=n, driver="525.85.12") for n in range(41)]
    (group,), verdicts, acting = incident(bad, sizes={"pool=train": 420, "driver=525.85.12": 120})
    assert (group.scope, group.code, verdicts, acting) == (("driver", "525.85.12"), "XID_119", {"AMBIGUOUS"}, [])


def test_an_upgrade_under_running_drivers_is_one_incident():
    rows = fine(NVML=reading("NVML", "version_mismatch", since=300))
    bad = [node(f"i-{n}", readings=rows, image="ami-1") for n in range(135)]
    (group,), _, acting = incident(bad, sizes={"pool=train": 200, "image=ami-1": 135})
    assert (group.code, group.scope, acting) == ("NVML_LIB_RM_VERSION_MISMATCH", ("image", "ami-1"), [])


def test_storage_that_fails_for_a_zone_is_one_incident():
    rows = fine(EC2_ATTACHED_EBS=reading("EC2_ATTACHED_EBS", "IMPAIRED", "ec2", since=300))
    bad = [node(f"i-{n}", readings=rows, zone="us-west-2c") for n in range(4)]
    (group,), _, acting = incident(bad, sizes={"pool=train": 40, "zone=us-west-2c": 12})
    assert (group.code, group.scope, acting) == ("EC2_EBS_IMPAIRED", ("zone", "us-west-2c"), [])


def test_a_zones_power_loss_is_one_incident():
    rows = fine(
        EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=120),
        AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=400),
    )
    dead = [node(f"i-{n}", readings=rows, zone="us-east-1a") for n in range(9)]
    (group,), verdicts, _ = incident(dead, sizes={"pool=train": 30, "zone=us-east-1a": 10})
    assert group.scope == ("zone", "us-east-1a") and len(group.instances) == 9 and verdicts == {"HARDWARE"}


def test_a_storm_of_45_is_one_incident_and_no_repair():
    storm = [node(f"i-{n}", line=45, n=n, zone="a") for n in range(77)]
    (group,), verdicts, acting = incident(storm, sizes={"pool=train": 80, "zone=a": 80})
    assert group.soft and group.code == "XID_45" and verdicts == {"HEALTHY"} and acting == []


def test_one_lost_gpu_among_64_nodes_of_a_job_is_one_case():
    lost = [*fine(), reading("GPU_STATUS", "lost", gpu="0000:4a:00", since=60, seen=4)]
    root = node("i-root", line=79, readings=lost, seconds=70, job="j1")
    mates = [node(f"i-{n}", line=45, n=n, job="j1") for n in range(63)]
    (group,), _, acting = incident([root, *mates], sizes={"pool=train": 64})
    assert (group.kind, group.root, group.code, len(group.victims)) == ("ROOT", "i-root", "XID_79", 63)
    assert acting == [root[0]]


def test_the_end_of_a_capacity_block_is_no_storm():
    away = fine(AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=400))
    ending = []
    for n in range(20):
        got, s = node(f"i-{n}", readings=away)
        assert got.verdict is Verdict.AMBIGUOUS
        ending.append(
            (got, Subject(s.instance, s.at, s.codes, s.scopes, s.jobs, (*s.all_codes, "CAPACITY_BLOCK_ENDING")))
        )
    found, _, acting = incident(ending, sizes={"pool=train": 20})
    assert (found, acting) == ((), [])


def test_a_host_that_failed_is_one_case_of_hardware():
    rows = fine(
        EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=3600),
        AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=3700),
    )
    got, subject = node("i-1", readings=rows)
    assert (str(got.verdict), str(got.action), got.may_act) == ("HARDWARE", "REPLACE", True)
    assert correlate([subject], now=NOW, sizes={("pool", "train"): 20}) == ()


def test_evidence_spread_over_hours_is_no_storm():
    nodes = [node(f"i-{n}", line=119, n=n, seconds=60 + n * 1200.0) for n in range(6)]
    assert incident(nodes, sizes={"pool=train": 20})[0] == ()
    assert NOW - timedelta(hours=2) < nodes[0][1].at


# --- each of the samples of whole incidents, as many nodes

IMPAIRED = {
    "EC2_ATTACHED_EBS": lambda: fine(EC2_ATTACHED_EBS=reading("EC2_ATTACHED_EBS", "IMPAIRED", "ec2", since=300)),
    "EC2_SYSTEM": lambda: fine(
        EC2_SYSTEM=reading("EC2_SYSTEM", "IMPAIRED", "ec2", since=3600),
        AGENT_CONNECTIVITY=reading("AGENT_CONNECTIVITY", "IMPAIRED", "ecs", since=3700),
    ),
    "NVML": lambda: fine(NVML=reading("NVML", "version_mismatch", since=300)),
}


def notice():
    return Event(ago(60), "AWS_HEALTH_EVENT", "aws-health", text="loss of power", attrs={"topic": "issue"})


def stalled_monitor():
    rate = reading("SBE_RATE", 16_800.0, "dcgm", gpu=GPU, since=300)
    return {"readings": [*fine(), rate], "events": [Event(ago(50), "DCGM_UNREACHABLE", "dcgm")], "line": 45}


def many(count, of, **more):
    """`count` nodes that show it among `of` of the pool; the scopes in `more` have as many as show it."""
    scopes = {k: v for k, v in more.items() if k in ("zone", "driver", "image")}
    sizes = {"pool=train": of, **{f"{k}={v}": more.get("size", count) for k, v in scopes.items()}}
    given = {k: v for k, v in more.items() if k not in ("size", "readings")}
    made = more.get("readings", fine)
    return [node(f"i-{n}", n=n, readings=made(), **given) for n in range(count)], sizes


REBUILT = {
    "IN002": lambda: many(9, 60, zone="us-east-1a", size=20, events=[notice()]),
    "IN003": lambda: many(4, 40, zone="us-west-2c", readings=IMPAIRED["EC2_ATTACHED_EBS"]),
    "IN004": lambda: many(40, 730, driver="610.48.02", line=31),
    "IN005": lambda: many(41, 420, driver="525.85.12", size=120, line=119),
    "IN007": lambda: ([node("i-0", **stalled_monitor())], {"pool=train": 18}),
    "IN009": lambda: many(1, 20, readings=IMPAIRED["EC2_SYSTEM"]),
    "IN011": lambda: many(3, 3, readings=list),
    "IN012": lambda: many(135, 200, image="ami-1", readings=IMPAIRED["NVML"]),
}
SAMPLED = [row for row in map(json.loads, SAMPLES.open()) if row["kind"] == "incident"]


def test_each_sample_of_an_incident_is_rebuilt():
    assert set(REBUILT) == {row["id"] for row in SAMPLED}


@pytest.mark.parametrize("sample", SAMPLED, ids=lambda row: row["id"])
def test_a_rebuilt_incident_gives_what_its_sample_says(sample):
    nodes, sizes = REBUILT[sample["id"]]()
    groups, verdicts, acting = incident(nodes, sizes=sizes)
    want = sample["expect"]
    if want["verdict"] == "CORRELATED":
        (group,) = groups  # one for all of them
        assert (group.kind, [group.code], len(group.instances)) == ("CORRELATED", want["codes"], len(nodes))
        assert acting == []
        return
    assert groups == () and verdicts <= {want["verdict"], *sample.get("alt", ())}
    codes = {code for got, _ in nodes for code in got.codes}
    if want["codes"]:
        assert set(want["codes"]) <= codes
        assert sample["doubt"] or {str(got.action) for got, _ in nodes} == {want["action"]}

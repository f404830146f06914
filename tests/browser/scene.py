"""A plausible fleet on a bad night: cases in each state, repairs in each, hostile names, one blind source."""

from __future__ import annotations

from datetime import timedelta

from healthboard import clock
from healthboard.people.actors import POLICY, Actor
from tests import factories as make
from tests.browser import scene_repairs as past

#: markup, a template's braces, marks that turn text, escape sequences, and a word that no page is wide enough for
HOSTILE = (
    '<img src=x onerror="document.title=1"><script>document.title=2</script> {{ 7*7 }} \u202edrowssap\u202c '
    f"\x1b[31m\x07 {'W' * 90}"
)


def people() -> dict[str, object]:
    return {role: make.person(role, role) for role in ("viewer", "operator", "approver", "admin")}


def fill(size: int = 40, *, calm: bool = False) -> dict[str, object]:
    """Write the scene; returns what tests look for. `calm` leaves out everything that is wrong."""
    found: dict[str, object] = {"people": people()}
    make.switch()
    for name, scope in (("ec2", ""), ("autoscaling", ""), ("ecs", "gpu"), ("node", "gpu")):
        make.source(
            name,
            scope=scope,
            age=4 if name != "node" or calm else 95,
            error="" if name != "node" or calm else "no report from 3 of 40 nodes within a minute",
        )
    if not calm:
        _aws_says()
    train, infer = make.pool("train"), make.pool("infer", desired=6)
    solo = make.pool("solo", "TEMPLATE")
    llm = make.workload("llm-train", desired=14, running=13)
    serve = make.workload("chat-serve")
    nightly = make.workload("eval-nightly", "FAMILY")
    fleet = []
    for number in range(size):
        home, kind = ((train, "p5.48xlarge"), (infer, "g6e.12xlarge"), (solo, "p4d.24xlarge"))[
            0 if number % 2 == 0 else 1 if number % 6 == 1 else 2
        ]
        fleet.append(make.instance(home, instance_type=kind, gpus_expected=4 if "g6e" in kind else 8))
    for one in fleet[:12]:
        make.gpus(one, one.gpus_expected)
        make.task(one, llm if one.pool_id == train.pk else serve)
    found["fleet"] = fleet
    if calm:
        return found
    _waiting(found, train, solo, nightly)
    past.running(found, train, infer, solo)
    past.rest(found, train, infer, solo)
    return found


def _aws_says() -> None:
    """AWS Health of a zone and of the account, naming no machine."""
    from healthboard.fleet.models import AwsNotice

    common = {"account": make.account(), "region": "us-east-1", "service": "EC2"}
    AwsNotice.objects.create(
        arn="arn:aws:health:us-east-1::event/EC2/1", zone="us-east-1b", type="AWS_EC2_OPERATIONAL_ISSUE", topic="issue",
        text="We are investigating increased API error rates and connectivity issues in us-east-1b.",
        begun_at=make.ago(2400), told_at=make.ago(600), **common,
    )  # fmt: skip
    AwsNotice.objects.create(
        arn="arn:aws:health:us-east-1::event/EC2/2", type="AWS_EC2_MAINTENANCE_SCHEDULED", topic="maintenance",
        text="Planned maintenance of a network path.", begun_at=make.ago(9000), told_at=make.ago(9000), **common,
    )  # fmt: skip


def _waiting(found: dict, train, solo, nightly) -> None:
    sick = make.instance(
        train,
        verdict="AMBIGUOUS",
        verdict_code="XID_119",
        tasks_running=3,
        verdict_why="GSP did not answer a driver call on GPU 3.",
        owner_evidence=["Tag aws:autoscaling:groupName is train-asg", "DescribeAutoScalingInstances lists it"],
    )
    gpus = make.gpus(sick, 8, bad={3: "error"})
    make.task(sick)
    make.task(sick, nightly, protected_until=clock.now() + timedelta(hours=1))
    make.event(
        sick,
        "XID_119",
        gpu=gpus[3].uuid,
        count=3,
        at=make.ago(175),
        text="NVRM: Xid (PCI:0000:3d:00): 119, pid=4711, name=python3, Timeout after 6s of waiting for RPC response from GPU3 GSP!",
    )
    make.event(
        sick, "XID_45", gpu=gpus[3].uuid, at=make.ago(174), text="NVRM: Xid (PCI:0000:3d:00): 45, pid=4711, Ch 00000008"
    )
    past.say(sick, ACCELERATED_COMPUTE="OK")
    make.recording(sick, gpus)
    for one in (sick, *found["fleet"][2:6:2]):
        make.task(one, make.workload("pretrain", "FAMILY"), job="pretrain/run-7", started_at=make.ago(90000))
    for days, resolution in ((9, "REPAIRED"), (20, "DISMISSED"), (31, "REPAIRED")):
        old = make.case(
            make.instance(train, gone_at=make.ago(86400 * days)),
            state="CLOSED",
            resolution=resolution,
            opened_at=make.ago(86400 * days + 900),
            closed_at=make.ago(86400 * days),
        )
        make.decision(
            old,
            found["people"]["operator"],
            "dismiss" if resolution == "DISMISSED" else "approve",
            reason="Driver bug, fixed by 580.95" if resolution == "DISMISSED" else "",
            outcome="DONE",
        )
    case = make.case(
        sick,
        title="GPU 3 of 8 stopped answering the driver (Xid 119)",
        gpu=gpus[3].uuid,
        codes=["XID_119", "XID_45"],
        victims=[one.instance_id for one in found["fleet"][2:6:2]],
        why="The GPU's system processor timed out three times within a minute. "
        "EKS reboots, ECS does not act, NVIDIA says reset: sources disagree.",
    )
    who = Actor("healthboard:evidence", "system")
    make.audit("case.opened", "case opened: Xid 119 on GPU 3, ambiguous", by=who, case_id=case.pk, instance=sick)
    make.audit("case.planned", "plan version 1: drain and reboot", by=POLICY, case_id=case.pk, instance=sick)
    found["case"], found["sick"] = make.as_read(case), sick
    found["like"] = [
        make.case(
            make.instance(solo, verdict="AMBIGUOUS", verdict_code="XID_109", instance_type="p4d.24xlarge"),
            code="XID_109",
            title=f"Context switch timeout on GPU {n} (Xid 109)",
            expires_at=clock.now() + timedelta(minutes=40 + n),
        )
        for n in range(3)
    ]
    dead = make.instance(
        solo,
        verdict="HARDWARE",
        verdict_code="EC2_SYSTEM_IMPAIRED",
        agent_connected=False,
        instance_type="p4d.24xlarge",
    )
    past.say(dead, "INSUFFICIENT_DATA", EC2_SYSTEM="IMPAIRED")
    found["expiring"] = make.case(
        dead,
        code="EC2_SYSTEM_IMPAIRED",
        verdict="HARDWARE",
        action="REPLACE",
        expires_at=clock.now() + timedelta(minutes=4),
        title="The host under this instance is impaired, its agent is away",
        why_waiting="Dead host: the policy asks before tasks are given up",
    )
    evil = make.instance(
        solo,
        verdict="AMBIGUOUS",
        verdict_code="NVML_UNKNOWN_ERROR",
        tags={"Name": HOSTILE},
        owner_evidence=[HOSTILE],
        verdict_why=HOSTILE,
    )
    make.event(evil, "NVML_UNKNOWN_ERROR", text=HOSTILE)
    make.task(evil, make.workload(HOSTILE[:200]), job=HOSTILE[:200])
    found["evil"] = make.case(
        evil,
        code="NVML_UNKNOWN_ERROR",
        action="DIAGNOSE",
        title=f"Unknown error {HOSTILE}"[:255],
        why=HOSTILE,
        plan={**make.plan("DIAGNOSE"), "sentence": HOSTILE},
    )
    make.request(evil, asked_by="operator")
    make.request(evil, "bug-report", answered=False, expires_at=make.ago(5))

"""The scene's other half: repairs under way and past, what is held, what is broken about the system itself."""

from __future__ import annotations

from datetime import timedelta

from healthboard import clock
from healthboard.cases import alarm
from healthboard.fleet.models import Gpu, Pulse
from healthboard.notices import outbox
from healthboard.notices.models import Delivery, Notice, Target
from healthboard.people.actors import POLICY
from healthboard.repairs import second as two_people
from tests import factories as make


def say(on, status: str = "OK", **other: object) -> None:
    for name in ("EC2_SYSTEM", "EC2_INSTANCE", "EC2_ATTACHED_EBS"):
        make.reading(on, name, other.get(name, "OK"), channel="ec2")
    for name in ("AGENT_CONNECTIVITY", "CONTAINER_RUNTIME", "ACCELERATED_COMPUTE"):
        make.reading(on, name, other.get(name, status), channel="ecs")
    make.reading(on, "NVML", "ok", channel="node", source="nvml")
    make.reading(on, "GPU_COUNT", other.get("GPU_COUNT", 8), channel="node", source="nvml")


def running(found: dict, train, infer, solo) -> None:
    first = make.instance(train, verdict="HARDWARE", verdict_code="XID_79", ecs_status="DRAINING", tasks_running=1)
    gpus = make.gpus(first, 8, bad={5: "lost"})
    make.event(first, gpu=gpus[5].uuid)
    say(first, ACCELERATED_COMPUTE="IMPAIRED", GPU_COUNT=7)
    case = make.case(
        first,
        code="XID_79",
        verdict="HARDWARE",
        action="REPLACE",
        state="DECIDED",
        mode="auto",
        may_act=True,
        gpu=gpus[5].uuid,
        title="GPU 5 of 8 has fallen off the bus (Xid 79)",
        why="The kernel log and NVML agree that GPU 5 is gone.",
    )
    repair = make.repair(first, replacement=make.instance(train, launched_by_us=False, launched_at=make.ago(60)))
    steps = make.steps(repair, "recheck", "room", "keep", "drain", "standby", "replacement")
    make.call(steps[3])
    make.call(steps[4], "EnterStandby", service="autoscaling")
    make.occupancy(repair)
    make.decision(case, None, "auto", repair=repair)
    for verb, text in (
        ("case.opened", "case opened: Xid 79, hardware"),
        ("case.decided", "decided by policy: drain and replace"),
    ):
        make.audit(verb, text, by=POLICY, case_id=case.pk, instance=first)
    for step in steps:
        make.audit(
            "repair.step", f"step {step.name}: {step.state.lower()}", by=POLICY, repair_id=repair.pk, instance=first
        )
    found["running"], found["running_repair"] = case, repair
    second = make.instance(
        infer, verdict="HARDWARE", verdict_code="XID_48", instance_type="g6e.12xlarge", gpus_expected=4
    )
    undoable = make.case(
        second,
        code="XID_48",
        verdict="HARDWARE",
        action="REBOOT",
        state="DECIDED",
        title="Double-bit ECC error on GPU 1 (Xid 48)",
    )
    scheduled = make.repair(
        second,
        state="SCHEDULED",
        action="REBOOT",
        automatic=False,
        requested_by="operator",
        opened_at=clock.now(),
        not_before=clock.now() + timedelta(seconds=300),
    )
    make.decision(undoable, found["people"]["operator"], repair=scheduled)
    found["undoable"] = undoable
    third = make.instance(
        solo, verdict="HARDWARE", verdict_code="XID_95", ecs_status="DRAINING", instance_type="p4d.24xlarge"
    )
    asks = make.case(
        third,
        code="XID_95",
        verdict="HARDWARE",
        action="REBOOT",
        state="DECIDED",
        title="Uncontained ECC error (Xid 95)",
    )
    asking = make.repair(
        third,
        state="ASKING",
        action="REBOOT",
        requested_by="healthboard:policy",
        why_waiting="Two tasks have not left for 30 minutes: one is protected, one standalone",
        facts={
            "choices": [
                {"key": "wait", "title": "Wait for another 30 minutes", "needs": ""},
                {"key": "undo", "title": "Undo: back to ACTIVE", "needs": ""},
                {"key": "terminate_first", "title": "Reboot now and lose the two tasks", "needs": "terminate_first"},
            ]
        },
    )
    make.steps(asking, "recheck", "room", "keep", "drain", "tasks")
    make.decision(asks, None, "auto", repair=asking)
    found["asking_repair"] = asking
    who = make.actor(found["people"]["operator"], recent=True)
    two_people.ask_answer(asking.pk, actor=who, choice="terminate_first", reason="both tasks are ours and may go")


def _own_health(found: dict, solo) -> None:
    """A broken invariant, and an audit record whose head cannot be kept."""
    orphan = make.instance(solo, launched_by_us=True)
    alarm.keep([f"ORPHAN: {orphan} was launched by a repair and belongs to none, and to no group"])
    detail = {
        "position": 18233,
        "hash": "9f" * 32,
        "log": "/var/lib/healthboard/audit-heads.log",
        "problem": "the head cannot be kept outside the database: /var/lib/healthboard: No space left on device",
    }
    Pulse.objects.create(name="audit", at=make.ago(7), ok=False, detail=detail)


def rest(found: dict, train, infer, solo) -> None:
    _own_health(found, solo)
    tripped = make.breaker(
        "us-east-1b", scope_kind="zone", why="GPU_OVERTEMP on 5 of 14 instances of zone us-east-1b within 10 minutes"
    )
    group = make.case(
        None,
        code="GPU_OVERTEMP",
        verdict="CORRELATED",
        action="HOLD",
        breaker=tripped,
        pool=train,
        title="5 instances in us-east-1b run hot at once",
        plan={
            "sentence": "Nothing is done to any of them until a person releases the breaker.",
            "tasks_total": 9,
            "gpus": 40,
            "if_nobody_answers": "It stays held; the members' cases wait.",
        },
    )
    for _ in range(5):
        hot = make.instance(train, verdict="CORRELATED", verdict_code="GPU_OVERTEMP", zone="us-east-1b")
        make.case(
            hot,
            code="GPU_OVERTEMP",
            verdict="CORRELATED",
            action="HOLD",
            state="HELD",
            parent=group,
            title="GPU 2 is past its slowdown temperature",
        )
    found["group"], found["breaker"] = group, tripped
    done = make.instance(
        train,
        verdict="HARDWARE",
        verdict_code="XID_79",
        gone_at=make.ago(300),
        state="terminated",
        ecs_status="INACTIVE",
    )
    case = make.case(
        done,
        code="XID_79",
        verdict="HARDWARE",
        action="REPLACE",
        state="CLOSED",
        resolution="REPAIRED",
        mode="auto",
        title="GPU 0 of 8 has fallen off the bus (Xid 79)",
        closed_at=clock.now(),
    )
    repair = make.repair(
        done,
        state="SUCCEEDED",
        opened_at=make.ago(700),
        closed_at=make.ago(10),
        outcome="REPAIRED",
        outcome_why="The replacement serves, the old instance is terminated",
        replacement=make.instance(train),
    )
    found["condemned"] = make.gpus(done, 1)[0]
    for gpu in (found["condemned"], found["sick"].gpus.get(index=6)):
        Gpu.objects.filter(pk=gpu.pk).update(condemned_at=make.ago(7200), condemned_why=f"XID_79, repair {repair.pk}")
    make.steps(
        repair,
        "recheck",
        "room",
        "keep",
        "drain",
        "standby",
        "replacement",
        "tasks",
        "detach",
        "terminate",
        "verify",
        last="DONE",
    )
    make.decision(case, None, "auto", repair=repair, outcome="DONE")
    bad = make.instance(solo, verdict="HARDWARE", verdict_code="XID_62", instance_type="p4d.24xlarge")
    again = make.case(
        bad,
        code="XID_62",
        verdict="HARDWARE",
        action="REPLACE",
        tries=1,
        title="Internal micro-controller halt (Xid 62), again after a reboot",
    )
    failed = make.repair(
        bad,
        state="FAILED",
        action="REBOOT",
        outcome_why="After the reboot the same code came back within the soak time",
    )
    make.decision(again, None, "auto", repair=failed, outcome="DONE")
    make.case(
        make.instance(infer, verdict="AMBIGUOUS", verdict_code="FABRIC_UNHEALTHY"),
        code="FABRIC_UNHEALTHY",
        action="DIAGNOSE",
        state="SNOOZED",
        snoozed_until=clock.now() + timedelta(minutes=50),
        title="NVLink fabric reports itself unhealthy",
    )
    make.case(
        make.instance(make.pool("managed", "MANAGED"), verdict="HARDWARE", verdict_code="XID_79"),
        code="XID_79",
        verdict="HARDWARE",
        action="REPLACE",
        state="OBSERVED",
        title="GPU 2 fell off the bus; ECS replaces it",
        mode_why="Managed Instances with auto repair on: ECS replaces it, healthboard records",
    )
    make.instance(solo, verdict="UNKNOWN", node_seen_at=make.ago(2000), agent_connected=None)
    make.instance(train, verdict="WATCH", verdict_code="ROW_REMAP_PENDING")
    make.pause()
    _told()


def _told() -> None:
    """Targets: one that arrives, one that is tried again, one that was given up on."""
    for name, kind, state, error in (
        ("ops-channel", "slack", "SENT", ""),
        ("on-call", "pagerduty", "PENDING", "It answers 503: the receiver has trouble; it is sent again later."),
        (
            "ticket-bot",
            "webhook",
            "FAILED",
            "It answers 410: gone: look at what the receiver expects, and at its secret.",
        ),
    ):
        target = Target.objects.create(name=name, kind=kind, address="http://127.0.0.1:9/hook")
        outbox.announce(key=f"test-{name}", kind="test", subject="a test", only=target)
        notice = Notice.objects.get(key=f"test-{name}")
        Delivery.objects.create(
            notice=notice, target=target, state=state, error=error, attempts=1, next_at=make.ago(-60),
            ended_at=None if state == "PENDING" else make.ago(240),
        )  # fmt: skip

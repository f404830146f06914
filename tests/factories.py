"""Rows for tests: plain functions with sensible defaults; every field can be set. `plan()` is a whole plan."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model

from healthboard import clock
from healthboard.audit.record import record
from healthboard.cases.evidence import evidence_hash
from healthboard.cases.models import Case, Decision, Evidence
from healthboard.fleet.models import (
    Account,
    Cluster,
    Gpu,
    Head,
    HealthEvent,
    Instance,
    Interval,
    NodeRequest,
    Pool,
    Source,
    Task,
    Workload,
)
from healthboard.people.actors import Actor
from healthboard.people.models import Grant
from healthboard.policies.reading import reread
from healthboard.repairs.models import Breaker, Call, Occupancy, Pause, Repair, Step, Switch

REGION = "us-east-1"
PASSWORD = "correct horse battery"
_numbers = itertools.count(1)


def ago(seconds: float) -> datetime:
    return clock.now() - timedelta(seconds=seconds)


def account(account_id: str = "111122223333", **fields: Any) -> Account:
    return Account.objects.get_or_create(account_id=account_id, defaults=fields)[0]


def person(role: str = "operator", name: str = "", **scope: Any):
    """A user with one grant (no grant for an empty role)."""
    user = get_user_model().objects.create_user(name or f"{role or 'nobody'}{next(_numbers)}", password=PASSWORD)
    if role:
        Grant.objects.create(user=user, role=role, **scope)
    return user


def actor(user: Any, *, via: str = "web", recent: bool = True) -> Actor:
    return Actor(name=user.get_username(), via=via, user=user, recent=recent)


def cluster(name: str = "gpu", **fields: Any) -> Cluster:
    owner = fields.pop("account", None) or account()
    region = fields.pop("region", REGION)
    arn = f"arn:aws:ecs:{region}:{owner.account_id}:cluster/{name}"
    return Cluster.objects.get_or_create(
        account=owner, region=region, name=name, defaults={"arn": arn, "seen_at": clock.now(), **fields}
    )[0]


def pool(name: str = "train", kind: str = "GROUP", **fields: Any) -> Pool:
    home = fields.pop("cluster", None) or cluster(
        account=fields.pop("account", None), region=fields.pop("region", REGION)
    )
    defaults: dict[str, Any] = {"kind": kind, "seen_at": clock.now()}
    if kind == "GROUP":
        defaults |= {"group_name": f"{name}-asg", "desired": 20, "minimum": 0, "maximum": 30}
    elif kind == "TEMPLATE":
        defaults |= {"template_id": "lt-0abc", "desired": None}
    return Pool.objects.get_or_create(
        account=home.account, region=home.region, cluster=home, name=name, defaults={**defaults, **fields}
    )[0]


def instance(home: Pool | None = None, **fields: Any) -> Instance:
    number = next(_numbers)
    home = home or pool()
    code = f"i-{number * 0x9E3779B97F4A7C15 % 16**17:017x}"
    values: dict[str, Any] = {
        "account": home.account,
        "region": home.region,
        "instance_id": code,
        "cluster": home.cluster,
        "pool": home,
        "owner": {"GROUP": "GROUP", "TEMPLATE": "TEMPLATE", "MANAGED": "ECS"}.get(home.kind, "PLAIN"),
        "state": "running",
        "zone": f"{home.region}{'abc'[number % 3]}",
        "instance_type": "p5.48xlarge",
        "image_id": "ami-0gpu",
        "group_name": home.group_name,
        "group_state": "InService" if home.group_name else "",
        "purchase": "on-demand",
        "private_ip": f"10.0.{number // 250 % 250}.{number % 250 + 1}",
        "launched_at": ago(86400 * 3),
        "ecs_status": "ACTIVE",
        "agent_connected": True,
        "tasks_running": 2,
        "container_arn": f"arn:aws:ecs:{home.region}:{home.account.account_id}:container-instance/gpu/{code}",
        "registered_at": ago(86400 * 3),
        "boot_id": f"boot-{number}",
        "booted_at": ago(86400 * 3),
        "driver_version": "580.95.05",
        "reporter_version": "1.0.0",
        "node_seen_at": ago(4),
        "gpus_expected": 8,
        "first_seen_at": ago(86400 * 3),
        "seen_at": ago(6),
        "verdict": "HEALTHY",
        "verdict_since": ago(86400),
        "evaluated_at": ago(6),
        "evidence_at": ago(600),
    }
    return Instance.objects.create(**{**values, **fields})


def gpus(on: Instance, count: int = 8, *, bad: dict[int, str] | None = None) -> list[Gpu]:
    """`count` GPUs on an instance; `bad` maps an index to its status."""
    rows = []
    for index in range(count):
        number = next(_numbers)
        measured = {
            "temperature_c": 41 + index,
            "power_w": 310.5,
            "utilization_pct": 97,
            "memory_used_mib": 61000,
            "memory_total_mib": 81559,
            "ecc": {"volatile_uncorrected": 0, "aggregate_uncorrected": 0},
            "row_remap": {"pending": False, "failure": False, "uncorrectable": 0},
            "pcie_replay": 0,
            "nvlink_down": 0,
            "recovery_action": 0,
        }
        status = (bad or {}).get(index, "ok")
        rows.append(
            Gpu(
                account=on.account,
                region=on.region,
                uuid=f"GPU-{number:08x}-41d4-4a5b-9c2e-{number:012x}",
                serial=f"16502230{number:05d}",
                name="NVIDIA H100 80GB HBM3",
                instance=on,
                index=index,
                pci=f"0000:{0x3A + index:02x}:00",
                status=status,
                measured_at=ago(4),
                measurements=measured if status == "ok" else {},
            )
        )
    return Gpu.objects.bulk_create(rows)


def event(on: Instance, code: str = "XID_79", *, at: datetime | None = None, **fields: Any) -> HealthEvent:
    at = at or ago(60)
    values = {
        "source": "kernel",
        "at": at,
        "last_at": at,
        "received_at": at + timedelta(seconds=1),
        "text": "NVRM: Xid (PCI:0000:3d:00): 79, GPU has fallen off the bus.",
        "boot_id": on.boot_id,
    }
    return HealthEvent.objects.create(instance=on, code=code, **{**values, **fields})


def reading(
    on: Instance,
    name: str,
    value: Any,
    *,
    channel: str = "ec2",
    source: str = "",
    gpu: str = "",
    since: datetime | None = None,
    last: datetime | None = None,
    count: int = 20,
) -> Interval:
    """An open interval of a channel, with its head."""
    head, _ = Head.objects.get_or_create(
        instance=on, channel=channel, defaults={"first_at": ago(3600), "last_at": last or ago(5), "count": count}
    )
    return Interval.objects.create(
        head=head,
        instance=on,
        source=source or channel,
        name=name,
        gpu=gpu,
        value=value,
        since=since or ago(3600),
        first_count=1,
    )


def source(name: str = "ec2", *, age: float = 4, **fields: Any) -> Source:
    values = {
        "account": account(),
        "region": REGION,
        "scope": "",
        "interval_s": 6,
        "attempted_at": ago(min(age, 4)),
        "succeeded_at": ago(age),
        "good_rounds": 40,
        "calls": 400,
    }
    return Source.objects.create(name=name, **{**values, **fields})


def workload(name: str = "llm-train", kind: str = "SERVICE", **fields: Any) -> Workload:
    home = fields.pop("cluster", None) or cluster()
    return Workload.objects.get_or_create(
        account=home.account,
        region=home.region,
        cluster=home,
        name=name,
        kind=kind,
        defaults={"desired": 8, "running": 8, "pending": 0, **fields},
    )[0]


def task(on: Instance, of: Workload | None = None, **fields: Any) -> Task:
    of = of or workload(cluster=on.cluster)
    number = next(_numbers)
    arn = f"arn:aws:ecs:{on.region}:{on.account.account_id}:task/gpu/{number:032x}"
    values = {
        "account": on.account,
        "region": on.region,
        "cluster": on.cluster,
        "instance": on,
        "workload": of,
        "family": of.name,
        "last_status": "RUNNING",
        "desired_status": "RUNNING",
        "started_at": ago(7200),
        "gpus": 4,
    }
    return Task.objects.create(arn=arn, **{**values, **fields})


def plan(action: str = "REPLACE", *, owner: str = "GROUP", sentence: str = "", **fields: Any) -> dict[str, Any]:
    """A plan as `cases.lifecycle` writes it."""
    steps = [
        {
            "name": "recheck",
            "title": "Check again",
            "detail": "evidence, policy, budget, breakers, pauses and owner",
            "minutes": 0,
            "changes": False,
        },
        {
            "name": "drain",
            "title": "Drain",
            "detail": "set the container instance to DRAINING: service tasks move",
            "minutes": 0.1,
            "changes": True,
        },
        {
            "name": "standby",
            "title": "Standby",
            "detail": "EnterStandby: the group starts the replacement at once",
            "minutes": 0.2,
            "changes": True,
        },
        {
            "name": "replacement",
            "title": "Await replacement",
            "detail": "registered, connected, GPUs good, soaked",
            "minutes": 8,
            "changes": False,
        },
        {
            "name": "tasks",
            "title": "Await tasks",
            "detail": "until every task has left",
            "minutes": 3,
            "changes": False,
        },
        {
            "name": "terminate",
            "title": "Terminate",
            "detail": "TerminateInstances on this one instance",
            "minutes": 1,
            "changes": True,
        },
        {
            "name": "verify",
            "title": "Verify",
            "detail": "the pool is as before, and the fault is gone",
            "minutes": 0.5,
            "changes": False,
        },
    ]
    return {
        "action": action,
        "owner": owner,
        "steps": steps,
        "minutes": 13,
        "sentence": sentence or "Drain the instance, let the group start a replacement, and terminate it once empty.",
        "tasks": [
            {"workload": "llm-train", "kind": "SERVICE", "count": 2, "standalone": False, "protected": 0},
            {"workload": "eval-nightly", "kind": "FAMILY", "count": 1, "standalone": True, "protected": 1},
        ],
        "tasks_total": 3,
        "blockers": [],
        "warnings": ["One standalone task will not be restarted by ECS"],
        "budget": {"pool": "train", "size": 20, "allowed": 4, "out": 1, "left": 3},
        "replacement": {"from": "Auto Scaling group train-asg", "room": True, "why": "20 of at most 30 members"},
        "differences": [{"what": "Image", "live": "ami-0gpu", "template": "ami-0gpu-new"}],
        "loses": ["Everything on the instance store", "This host: a replacement gets another one"],
        "undo": "Until the instance is terminated: back to ACTIVE, and the extra instance is removed.",
        "if_nobody_answers": "Nothing. The case expires and is escalated; the group does not replace it by itself.",
        "choices": [
            {"action": "REBOOT", "title": "Drain and reboot"},
            {"action": "DIAGNOSE", "title": "Run diagnostics"},
            {"action": "DRAIN", "title": "Drain"},
        ],
        **fields,
    }


def case(
    on: Instance | None = None,
    *,
    code: str = "XID_119",
    verdict: str = "AMBIGUOUS",
    action: str = "REBOOT",
    state: str = "WAITING",
    **fields: Any,
) -> Case:
    """A case with one evidence row; `on` None and verdict CORRELATED give a group case."""
    if on is None and verdict != "CORRELATED":
        on = instance(verdict=verdict, verdict_code=code)
    opened = fields.get("opened_at") or ago(180)
    values: dict[str, Any] = {
        "account": on.account if on else account(),
        "region": on.region if on else REGION,
        "instance": on,
        "pool": on.pool if on else None,
        "state": state,
        "verdict": verdict,
        "action": action,
        "mode": "ask",
        "mode_why": "The fleet default asks a person about ambiguous findings.",
        "code": code,
        "codes": [code],
        "title": f"{code.replace('_', ' ').title().replace('Xid', 'Xid')} on {on or 'several instances'}",
        "why": "Primary sources disagree about the first time.",
        "plan": plan(action),
        "evidence_hash": f"{'ab' * 32}",
        "opened_at": opened,
        "changed_at": opened,
        "evidence_at": opened,
        "expires_at": clock.now() + timedelta(minutes=52) if state == "WAITING" else None,
        "closed_at": clock.now() if state == "CLOSED" else None,
    }
    row = Case.objects.create(**{**values, **fields})
    finding = {
        "code": code,
        "verdict": verdict,
        "action": action,
        "scope": "gpu",
        "gpu": row.gpu or None,
        "count": 2,
        "first": opened.isoformat(),
        "last": opened.isoformat(),
        "rule": "catalogue",
        "why": row.why,
        "sources": ["kernel", "nvml"],
    }
    assessment = {
        "verdict": verdict,
        "action": action,
        "may_act": row.may_act,
        "witnesses": ["kernel", "nvml"],
        "may_act_why": "the kernel log and NVML both say so"
        if row.may_act
        else "only a clear hardware failure may act by itself",
        "why": row.why,
        "primary": finding,
        "findings": [finding],
        "codes": [code],
    }
    Evidence.objects.create(
        case=row, at=opened, hash=row.evidence_hash, verdict=verdict, inputs={}, assessment=assessment
    )
    return row


def as_read(row: Case) -> Case:
    """The case with the hash of what its machine's evidence reads now, with which an answer is compared."""
    row.evidence_hash = evidence_hash(reread(row.instance).assessment)
    row.save(update_fields=["evidence_hash"])
    row.evidence.update(hash=row.evidence_hash)
    return row


def decision(of: Case, user: Any = None, kind: str = "approve", **fields: Any) -> Decision:
    values = {
        "action": of.action,
        "reason": "",
        "actor": user.get_username() if user else "healthboard:policy",
        "via": "web" if user else "policy",
        "plan_version": of.plan_version,
        "evidence_hash": of.evidence_hash,
        "at": clock.now(),
        "outcome": "PENDING",
    }
    return Decision.objects.create(case=of, kind=kind, user=user, **{**values, **fields})


def repair(on: Instance | None = None, *, state: str = "RUNNING", action: str = "REPLACE", **fields: Any) -> Repair:
    on = on or instance()
    opened = fields.get("opened_at") or ago(120)
    values = {
        "pool": on.pool,
        "owner": on.owner,
        "requested_by": "healthboard:policy",
        "automatic": True,
        "plan": plan(action),
        "opened_at": opened,
        "not_before": opened + timedelta(seconds=6),
        "next_at": clock.now(),
        "closed_at": None if state in ("SCHEDULED", "RUNNING", "ASKING", "UNDOING") else ago(10),
    }
    return Repair.objects.create(instance=on, state=state, action=action, **{**values, **fields})


def steps(of: Repair, *names: str, last: str = "RUNNING") -> list[Step]:
    """Steps taken so far; all but the last are done."""
    rows = []
    for number, name in enumerate(names, 1):
        state = last if number == len(names) else "DONE"
        started = of.opened_at + timedelta(seconds=6 * number)
        rows.append(
            Step.objects.create(
                repair=of,
                number=number,
                name=name,
                state=state,
                started_at=started,
                ended_at=None if state == "RUNNING" else started + timedelta(seconds=5),
            )
        )
    of.step = names[-1]
    of.save(update_fields=["step"])
    return rows


def call(of: Step, operation: str = "UpdateContainerInstancesState", outcome: str = "ok", **fields: Any) -> Call:
    values = {
        "service": "ecs",
        "target": of.repair.instance.instance_id,
        "request": {"status": "DRAINING"},
        "fence": 1,
        "intended_at": of.started_at,
        "answered_at": of.started_at + timedelta(seconds=1) if outcome else None,
    }
    return Call.objects.create(step=of, repair=of.repair, operation=operation, outcome=outcome, **{**values, **fields})


def occupancy(of: Repair, **fields: Any) -> Occupancy:
    values = {"pool": of.pool, "units": 1, "taken_at": of.opened_at, "size": 20, "allowed": 4, "out_before": 0}
    return Occupancy.objects.create(repair=of, **{**values, **fields})


def switch(**fields: Any) -> Switch:
    values = {
        "acting": True,
        "stopped": False,
        "changed_at": ago(86400),
        "changed_by": "healthboard",
        "reason": "first start",
    }
    Switch.objects.all().delete()
    return Switch.objects.create(**{**values, **fields})


def breaker(scope: str = "train", **fields: Any) -> Breaker:
    values = {
        "account": account(),
        "region": REGION,
        "kind": "CORRELATED",
        "scope_kind": "pool",
        "why": "XID_79 on 5 of 20 instances of pool train within 10 minutes",
        "opened_at": ago(240),
    }
    return Breaker.objects.create(scope=scope, **{**values, **fields})


def pause(scope_kind: str = "pool", scope: str = "infer", **fields: Any) -> Pause:
    values = {"reason": "Firmware roll-out", "set_by": "operator", "set_at": ago(600), "until": ago(-7200)}
    return Pause.objects.create(scope_kind=scope_kind, scope=scope, **{**values, **fields})


def request(on: Instance, verb: str = "diagnose-1", *, answered: bool = True, **fields: Any) -> NodeRequest:
    values: dict[str, Any] = {"asked_at": ago(90), "asked_by": "operator", "expires_at": ago(-210)}
    if answered:
        values |= {
            "delivered_at": ago(80),
            "answered_at": ago(70),
            "ok": False,
            "output": "GPU 3: not answering",
            "checks": [
                {"name": "gpu_count", "ok": False, "detail": "7 of 8"},
                {"name": "memory", "ok": True, "detail": "no row remap pending"},
            ],
        }
    return NodeRequest.objects.create(instance=on, verb=verb, **{**values, **fields})


def audit(verb: str, summary: str, *, by: Actor, **about: Any):
    """An audit row; `about` as `audit.record.record`."""
    from django.db import transaction

    with transaction.atomic():
        return record(verb, about.pop("subject", "test"), summary, actor=by, **about)


def recording(on: Instance, cards: list[Gpu], *, samples: int = 60, step_s: float = 15, end: float = 170):
    """A flight recording as a node sends it: the first card of the bad ones warms up and starts to replay."""
    sick = next((card.uuid for card in cards if card.status != "ok"), cards[0].uuid)
    rows = []
    for n in range(samples):
        late = max(n - samples * 2 // 3, 0)
        gpus = {
            card.uuid: {
                "temperature_c": 55 + card.index + (late if card.uuid == sick else n % 3), "power_w": 640.5 - late * 9,
                "utilization_pct": 97, "clock_event_reasons": 0x60 if late and card.uuid == sick else 0,
                "pcie_replay": late // 3 if card.uuid == sick else 0, "ecc_volatile_corrected": n // 20,
                "ecc_volatile_uncorrected": 0, "row_remap_uncorrectable": None,
            }
            for card in cards
        }  # fmt: skip
        rows.append({"at": f"{ago(end + (samples - n) * step_s):%Y-%m-%dT%H:%M:%S.%f}Z", "gpus": gpus})
    text = f"{samples} samples before the trouble"
    return event(on, "FLIGHT_RECORDER", at=ago(end), source="node", text=text, attrs={"samples": rows}, backlog=True)

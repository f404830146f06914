"""Instances of a made-up fleet, with their GPUs and tasks. Unsaved rows; all chance comes from one generator."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from healthboard.fleet.models import Gpu, Instance, Task, Workload
from healthboard.seed.places import Home

GPUS = 8
DRIVERS = ("580.95.05", "580.95.05", "580.95.05", "570.195.03")


@dataclass(slots=True)
class Machine:
    row: Instance
    home: Home
    gpus: list[Gpu] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)

    @property
    def booted_at(self) -> datetime:
        return self.row.booted_at


def uuid(rng: random.Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def machine(home: Home, number: int, rng: random.Random, now: datetime) -> Machine:
    """The `number`-th instance of a pool: healthy, in service, launched within the last sixty days."""
    pool, kind = home.pool, home.kind
    code = f"i-{rng.getrandbits(68):017x}"
    launched = now - timedelta(days=rng.uniform(1, 60))
    row = Instance(
        account=pool.account, region=pool.region, instance_id=code, cluster=pool.cluster, pool=pool, owner=kind.owner,
        owner_evidence=_owner(home), state="running", zone=home.zones[number % 3], instance_type=kind.instance_type,
        image_id="ami-0a1b2c3d4e5f60718", template_id=pool.template_id, template_version="7" if pool.template_id else "",
        group_name=pool.group_name, group_state="InService" if pool.group_name else "", purchase="on-demand",
        private_ip=f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}", ecs_status="ACTIVE",
        container_arn=f"{pool.cluster.arn.replace(':cluster/', ':container-instance/')}/{rng.getrandbits(128):032x}",
        agent_connected=True, driver_version=rng.choice(DRIVERS), reporter_version="1.0.0", gpus_expected=GPUS,
        seen_at=now, node_seen_at=now, verdict="HEALTHY", evaluated_at=now, tags={"team": kind.name},
    )  # fmt: skip
    start(row, launched, rng)
    made = Machine(row, home)
    made.gpus = [_gpu(row, kind.gpu, kind.memory_mib, index, rng, now) for index in range(GPUS)]
    return made


def start(row: Instance, at: datetime, rng: random.Random) -> None:
    """It was launched at `at`, and nothing was wrong since."""
    row.launched_at = row.first_seen_at = at
    boot(row, at + timedelta(minutes=2), rng)


def boot(row: Instance, at: datetime, rng: random.Random) -> None:
    row.boot_id = f"{rng.getrandbits(128):032x}"
    row.booted_at = row.verdict_since = at
    row.registered_at = row.evidence_at = at + timedelta(minutes=1)


def _owner(home: Home) -> list[str]:
    pool = home.pool
    return {
        "GROUP": [f"Tag aws:autoscaling:groupName is {pool.group_name}", "DescribeAutoScalingInstances lists it"],
        "TEMPLATE": [f"Tag aws:ec2launchtemplate:id is {pool.template_id}", "No group lists it"],
        "MANAGED": [f"Capacity provider {pool.name} manages its instances"],
    }[pool.kind]


def _gpu(row: Instance, name: str, memory: int, index: int, rng: random.Random, now: datetime) -> Gpu:
    return Gpu(
        account=row.account, region=row.region, uuid=uuid(rng), serial=f"165{rng.getrandbits(33):010d}", name=name,
        instance=row, index=index, pci=f"0000:{0x3A + 0x10 * index:02x}:00", status="ok", measured_at=now,
        measurements=measured(memory, rng),
    )  # fmt: skip


def measured(memory: int, rng: random.Random) -> dict[str, Any]:
    busy = rng.random() < 0.85
    return {
        "temperature_c": rng.randrange(48, 71) if busy else rng.randrange(30, 40),
        "power_w": rng.randrange(380, 690) if busy else rng.randrange(70, 110),
        "utilization_pct": rng.randrange(80, 100) if busy else 0, "memory_used_mib": int(memory * (0.8 if busy else 0.01)),
        "memory_total_mib": memory, "pcie_replay": 0, "nvlink_down": 0, "recovery_action": 0,
        "clock_event_reasons": 0, "code": 0,
        "ecc": {"volatile_corrected": 0, "volatile_uncorrected": 0, "aggregate_corrected": 0,
                "aggregate_uncorrected": 0, "sram_threshold": False},
        "row_remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
    }  # fmt: skip


def put_to_work(machines: list[Machine], rng: random.Random, now: datetime) -> None:
    """Tasks on the machines of one pool: gangs where its kind trains, else services and families by turns."""
    home = machines[0].home
    gang, job = home.kind.gang, ""
    for number, one in enumerate(machines):
        if rng.random() < 0.03:
            continue  # idle
        work = home.workloads[(number // gang if gang else number) % len(home.workloads)]
        if gang and (number % gang == 0 or not job):
            job = f"{work.name}-run-{rng.getrandbits(24):06x}"
        started = max(one.booted_at, now - timedelta(hours=rng.uniform(1, 60)))
        for _ in range(1 if gang else rng.choice((1, 2, 2))):
            arn = f"arn:aws:ecs:{one.row.region}:{one.row.account.account_id}:task/gpu/{rng.getrandbits(128):032x}"
            one.tasks.append(
                Task(
                    account=one.row.account, region=one.row.region, cluster=one.row.cluster, instance=one.row, arn=arn,
                    workload=work, family=work.name, group=f"service:{work.name}" if work.kind == "SERVICE" else
                    f"family:{work.name}", job=job if gang else "", last_status="RUNNING", desired_status="RUNNING",
                    started_at=started, gpus=GPUS if gang else 4,
                    protected_until=now + timedelta(hours=6) if work.kind == "FAMILY" and rng.random() < 0.05 else None,
                )
            )  # fmt: skip
        one.workloads = [work]
        one.row.tasks_running = len(one.tasks)
    for work in home.workloads:
        work.running = sum(1 for one in machines for task in one.tasks if task.workload is work)
        work.desired = work.running if work.kind == "SERVICE" else None

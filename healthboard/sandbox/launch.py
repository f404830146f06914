"""Bringing an instance into being, and ending it: shared by RunInstances, the groups and the default fleet."""

from __future__ import annotations

import base64
import re
from typing import Any

from healthboard.sandbox import interfere
from healthboard.sandbox.entities import Group, Instance, Template
from healthboard.sandbox.faults import FAULTS
from healthboard.sandbox.hardware import TYPES, gpus_of_host
from healthboard.sandbox.injure import after_move, inject
from healthboard.sandbox.spoil import Past
from healthboard.sandbox.world import World

PENDING_S, REGISTER_S, CHECKS_S = 40, 120, 110
STOPPING_S, SHUTTING_DOWN_S, GONE_S = 60, 30, 3600


def subnet_of(world: World, zone: str) -> str:
    return "subnet-" + world.seeded("subnet", zone)[:17]


def zone_of_subnet(world: World, subnet: str) -> str | None:
    return next((z for z in world.zones if subnet_of(world, z) == subnet), None)


def cluster_in(user_data: str) -> str | None:
    """The cluster that the instance's user data names (ECS_CLUSTER=…), or None."""
    try:
        text = base64.b64decode(user_data, validate=True).decode("utf-8", "replace")
    except ValueError:
        text = user_data
    match = re.search(r"ECS_CLUSTER=([\w-]+)", text)
    return match.group(1) if match else None


def user_data(cluster: str, pool: str) -> str:
    text = f"#!/bin/bash\ncat >> /etc/ecs/ecs.config <<'EOF'\nECS_CLUSTER={cluster}\nECS_ENABLE_GPU_SUPPORT=true\n"
    return base64.b64encode((text + f'ECS_INSTANCE_ATTRIBUTES={{"pool":"{pool}"}}\nEOF\n').encode()).decode()


def short_of(world: World, type_: str, zone: str) -> bool:
    return f"{type_}/{zone}" in world.shortages


def shortage_text(world: World, type_: str, zone: str) -> str:
    others = ", ".join(z for z in world.zones if z != zone)
    return (
        f"We currently do not have sufficient {type_} capacity in the Availability Zone you requested ({zone}). Our "
        f"system will be working on provisioning additional capacity. You can currently get {type_} capacity by not "
        f"specifying an Availability Zone in your request or choosing {others}."
    )


def launch(
    world: World,
    *,
    type_: str,
    zone: str,
    image: str,
    tags: dict[str, str],
    template: Template | None = None,
    version: str | None = None,
    data: str = "",
    group: Group | None = None,
    **more: Any,
) -> Instance:
    """A new pending instance on a host of its own, unless somebody made AWS hostile (`interfere.fate`)."""
    pool = group.pool if group else template.pool if template else None
    fate = interfere.fate(world.sandbox, pool)
    if fate.get("do") == "other_type":
        type_ = next(name for name, spec in TYPES.items() if spec.gpus and name != type_)
    number = world.count("instance")
    instance_id = "i-" + world.seeded("instance", number)[:17]
    system = {}
    if template:
        system = {"aws:ec2launchtemplate:id": template.id, "aws:ec2launchtemplate:version": version or template.default}
    if group:
        system["aws:autoscaling:groupName"] = group.id
    merged = {**tags, **system}
    if pool and "Name" not in merged:
        merged["Name"] = f"{pool}-{world.count(f'name/{pool}'):02d}"
    host = (_given_back(world, type_) if fate.get("do") == "condemned" else None) or world.count("host")
    instance = Instance(
        id=instance_id,
        type=type_,
        zone=zone,
        image=image,
        name=merged.get("Name", ""),
        private_ip=f"10.{(16 * world.number + number // 62500) % 250}.{number // 250 % 250}.{number % 250 + 4}",
        launched_at=world.now(),
        until=world.after(PENDING_S),
        tags=merged,
        template=template.id if template else None,
        template_version=version,
        pool=pool,
        cluster=cluster_in(data) if data and fate.get("do") != "never_registers" else None,
        provider=group.provider if group else None,
        user_data=data,
        host=host,
        **more,
    )
    identify(world, instance)
    world.add(instance)
    if fate.get("do") == "unseen":
        until = world.after(float(fate.get("lag_s", interfere.LAG_S)))
        world.sandbox.pasts.append(Past(world, until, hidden=[instance], service="ec2"))
    if fate.get("do") == "same_fault":
        inject(world, instance, fate.get("code") or _fault_of(world, pool))
    return instance


def _given_back(world: World, type_: str) -> int | None:
    """The host of the last machine of this type that was ended."""
    ended = [i for i in world.instances.values() if i.type == type_ and i.state == "terminated"]
    return max((i.host for i in ended), default=None)


def _fault_of(world: World, pool: str | None) -> str:
    """What ails a machine of the pool."""
    bad = [f["code"] for i in world.instances.values() if i.pool == pool and i.state == "running" for f in i.faults]
    return next((code for code in reversed(bad) if FAULTS[code].on_gpu), "XID_79")


def identify(world: World, instance: Instance) -> None:
    instance.gpus = gpus_of_host(TYPES[instance.type], world.config.seed, *world.where, "host", instance.host)


def boot(world: World, instance: Instance) -> None:
    """The kernel starts: new boot id, empty log, checks initializing for a while."""
    now = world.now()
    instance.boot_id = world.new_uuid("boot")
    instance.booted_at = now
    instance.checks_ok_at = world.after(CHECKS_S)
    instance.kmsg_seq = 400
    instance.kernel = []
    instance.console = [f"[    0.000000] Linux version 6.1.0 (boot {instance.boot_id})"]
    instance.report_seq = 0


def move_to_new_host(world: World, instance: Instance) -> None:
    instance.host = world.count("host")
    identify(world, instance)
    after_move(instance)


def terminate(world: World, instance: Instance, reason: str = "Client.UserInitiatedShutdown") -> None:
    if instance.state in ("shutting-down", "terminated"):
        return
    text = {
        "Client.UserInitiatedShutdown": "User initiated",
        "Server.SpotInstanceTermination": "Service initiated",
    }.get(reason, "User initiated")
    container = world.container_of.get(instance.id)
    instance.ecs_knows = container is not None and container.connected
    instance.state = "shutting-down"
    instance.until = world.after(SHUTTING_DOWN_S)
    instance.reboot_at = instance.reboot_until = None
    instance.state_reason = [reason, f"{reason}: {text.lower()} shutdown"]
    instance.transition_reason = text


def stop(world: World, instance: Instance) -> None:
    instance.state = "stopping"
    instance.until = world.after(STOPPING_S)
    instance.reboot_at = instance.reboot_until = None
    instance.state_reason = ["Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"]
    instance.transition_reason = "User initiated"

"""EC2's own moves: pending to running, stopping to stopped, shutting down to terminated, reboots."""

from __future__ import annotations

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.health import flags
from healthboard.sandbox.injure import after_reboot, faults_of
from healthboard.sandbox.kernel import say
from healthboard.sandbox.launch import GONE_S, REGISTER_S, boot, launch
from healthboard.sandbox.ticks.agents import host_terminated
from healthboard.sandbox.world import World


def tick(world: World) -> None:
    now = world.now()
    for instance in list(world.instances.values()):
        if instance.until is not None and now >= instance.until:
            _move(world, instance)
        elif instance.reboot_until is not None and now >= instance.reboot_until:
            _rebooted(world, instance)
        elif instance.gone_at is not None and now >= instance.gone_at:
            instance.gone, instance.gone_at = True, None


def _move(world: World, instance: Instance) -> None:
    instance.until = None
    if instance.state == "pending":
        instance.state, instance.state_reason, instance.transition_reason = "running", None, ""
        boot(world, instance)
        instance.agent_at = world.after(REGISTER_S)
    elif instance.state == "stopping":
        instance.state = "stopped"
    elif instance.state == "shutting-down":
        instance.state = "terminated"
        instance.gone_at = world.after(GONE_S)
        host_terminated(world, instance)
        if instance.spot.get("persistent") and not instance.spot["cancelled"]:
            _started_again(world, instance)


def _started_again(world: World, instance: Instance) -> None:
    """A persistent Spot request is open again once its instance ended, whoever ended it, and starts the next one."""
    launch(
        world, type_=instance.type, zone=instance.zone, image=instance.image, tags={},
        template=world.templates.get(instance.template or ""), version=instance.template_version,
        data=instance.user_data, market="spot", spot=instance.spot,
    )  # fmt: skip


def begin_reboot(world: World, instance: Instance) -> None:
    """Queued, as EC2 does it: the caller's answer says nothing about success. A dead host does not obey."""
    have = flags(instance)
    if "dead" in have or instance.state != "running":
        return
    length = 180 / world.config.speed
    if "slow_reboot" in have:
        length = max(length * 2, 66.0)
        instance.faults = [record for fault, record in faults_of(instance) if "slow_reboot" not in fault.flags]
    instance.reboot_at = world.now()
    instance.reboot_until = world.now() + length
    instance.kernel = []


def _rebooted(world: World, instance: Instance) -> None:
    instance.reboot_at = instance.reboot_until = None
    after_reboot(instance)
    boot(world, instance)
    instance.agent_at = world.after(30)
    for fault, record in faults_of(instance):
        if fault.gpu.get("status") == "lost":
            card = instance.gpus[record["gpu"]]
            say(world, instance, None, f"NVRM: The NVIDIA GPU {card['pci']}.0")
            say(world, instance, None, "NVRM: (PCI ID: 10de:2330) installed in this system has")
            say(world, instance, None, "NVRM: fallen off the bus and is not responding to commands.")

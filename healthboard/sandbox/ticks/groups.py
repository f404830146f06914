"""Auto Scaling groups: up to the desired capacity, unhealthy members out, Standby members left alone."""

from __future__ import annotations

from healthboard.sandbox.activities import begin, finish
from healthboard.sandbox.entities import Group
from healthboard.sandbox.health import impaired_since
from healthboard.sandbox.launch import launch, short_of, shortage_text, terminate
from healthboard.sandbox.protocol.serialize import iso
from healthboard.sandbox.world import World

MOVE_S, RETRY_S = 10, 60
ACTIVE = ("Pending", "InService")


def tick(world: World) -> None:
    now = world.now()
    for group in world.groups.values():
        _members(world, group, now)
        _unhealthy(world, group, now)
        _capacity(world, group, now)


def active(group: Group) -> list[str]:
    return [i for i, m in group.members.items() if m["state"] in ACTIVE]


def set_member(group: Group, instance: str, **changes: object) -> None:
    group.members = {**group.members, instance: {**group.members[instance], **changes}}


def drop_member(group: Group, instance: str) -> None:
    group.members = {i: m for i, m in group.members.items() if i != instance}


def _members(world: World, group: Group, now: float) -> None:
    """Lifecycle states that pass by themselves."""
    for id_, member in list(group.members.items()):
        instance = world.instances[id_]
        state, until = member["state"], member["until"]
        if state == "Pending":
            if instance.state == "running" and (until is None or now >= until):
                set_member(group, id_, state="InService", until=None)
                finish(world, group, id_, ("launch", "exit_standby", "attach"))
            elif instance.state in ("terminated", "shutting-down"):
                finish(world, group, id_, ("launch",), error="Client.InternalError")
                drop_member(group, id_)
        elif state == "EnteringStandby" and now >= (until or 0):
            set_member(group, id_, state="Standby", until=None)
            finish(world, group, id_, ("enter_standby",))
        elif state == "Detaching" and now >= (until or 0):
            drop_member(group, id_)
            instance.tags = {k: v for k, v in instance.tags.items() if k != "aws:autoscaling:groupName"}
            finish(world, group, id_, ("detach",))
        elif state == "Terminating" and instance.state == "terminated":
            drop_member(group, id_)
            finish(world, group, id_, ("terminate",))
        elif state == "Standby" and instance.state == "terminated":
            drop_member(group, id_)


def _unhealthy(world: World, group: Group, now: float) -> None:
    for id_, member in list(group.members.items()):
        if member["state"] != "InService":
            continue
        instance = world.instances[id_]
        if instance.state != "running":
            mark = member.get("bad_since") or now
            why = "it has been terminated or stopped"
        else:
            mark = impaired_since(instance, now)
            why = "an EC2 instance status check or a scheduled retirement found it unhealthy"
            said = member.get("said_unhealthy")
            if said is not None:  # SetInstanceHealth acts at once
                mark, why = said - world.config.replace_after_s, "a user set it unhealthy"
        if mark is None:
            if member.get("bad_since") is not None:
                set_member(group, id_, bad_since=None, health="Healthy")
            continue
        if member.get("bad_since") is None:
            set_member(group, id_, bad_since=mark)
        if now - mark < world.config.replace_after_s:
            continue
        if member["health"] == "Healthy":
            set_member(group, id_, health="Unhealthy")
        if {"ReplaceUnhealthy", "HealthCheck", "Terminate"} & set(group.suspended):
            continue
        begin(world, group, "terminate", id_, f"Terminating EC2 instance: {id_}",
              f"At {iso(now)} an instance was taken out of service in response to an EC2 health check indicating {why}.")  # fmt: skip
        set_member(group, id_, state="Terminating", until=None)
        terminate(world, instance, "Server.AutoScaling")


def _capacity(world: World, group: Group, now: float) -> None:
    have = active(group)
    if len(have) < group.desired and "Launch" not in group.suspended and now >= group.retry_at:
        _launch(world, group, now, len(have))
    elif len(have) > group.desired and "Terminate" not in group.suspended:
        _scale_in(world, group, now, have)


def _launch(world: World, group: Group, now: float, have: int) -> None:
    template = world.templates[group.template]
    latest = str(max(map(int, template.versions)))
    version = {"$Default": template.default, "$Latest": latest}.get(group.template_version, group.template_version)
    data = template.versions[version]
    load = {zone: 0 for zone in group.zones}
    for id_ in active(group):
        load[world.instances[id_].zone] = load.get(world.instances[id_].zone, 0) + 1
    # a zone that just failed is tried last
    zone = min(group.zones, key=lambda z: (group.failed_zones.get(z, 0) > now, load[z], z))
    cause = (
        f"At {iso(now)} an instance was started in response to a difference between desired and actual capacity, "
        f"increasing the capacity from {have} to {have + 1}."
    )
    if short_of(world, data["InstanceType"], zone):
        text = shortage_text(world, data["InstanceType"], zone) + " Launching EC2 instance failed."
        begin(world, group, "launch", "", "Launching a new EC2 instance.  Status Reason: " + text, cause, zone=zone,
              error="InsufficientInstanceCapacity", message=text)  # fmt: skip
        group.failed_zones = {**group.failed_zones, zone: world.after(600)}
        group.retry_at = world.after(RETRY_S)
        return
    tags = {t["Key"]: t["Value"] for s in data.get("TagSpecifications", []) for t in s["Tags"]}
    tags.update({k: v for k, v in group.tags.items() if not k.startswith("aws:")})
    instance = launch(
        world, type_=data["InstanceType"], zone=zone, image=data["ImageId"], tags=tags, template=template,
        version=version, data=data.get("UserData", ""), group=group,
    )  # fmt: skip
    group.members = {
        **group.members,
        instance.id: {"state": "Pending", "until": None, "protected": False, "version": version, "health": "Healthy"},
    }
    begin(world, group, "launch", instance.id, f"Launching a new EC2 instance: {instance.id}", cause, zone=zone)


def _scale_in(world: World, group: Group, now: float, have: list[str]) -> None:
    """One too many: the group picks, from the fullest zone, the oldest that is not protected."""
    options = [i for i in have if not group.members[i]["protected"]]
    if not options:
        return
    zones = [world.instances[i].zone for i in have]
    victim = min(options, key=lambda i: (-zones.count(world.instances[i].zone), world.instances[i].launched_at, i))
    begin(world, group, "terminate", victim, f"Terminating EC2 instance: {victim}",
          f"At {iso(now)} an instance was taken out of service in response to a difference between desired and actual "
          f"capacity, shrinking the capacity from {len(have)} to {len(have) - 1}.")  # fmt: skip
    set_member(group, victim, state="Terminating", until=None)
    terminate(world, world.instances[victim], "Server.AutoScaling")

"""Before anything is touched: is it still so, is there room, and what would be lost?"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from healthboard import clock
from healthboard.audit.record import record
from healthboard.fleet.seeing import why_blind
from healthboard.people.actors import WORKER
from healthboard.policies.reading import BAD, GOOD
from healthboard.policies.resolve import resolve
from healthboard.repairs import launches
from workers.collect.autoscaling import under_way
from workers.repair import origin, spot
from workers.repair.look import AwsTrouble, ask_about, ask_aws
from workers.repair.results import Done, End, Result, Skip, Undo, Wait
from workers.repair.run import Run
from workers.repair.steps.leave import standby_of_ours

#: suspended processes without which a group cannot replace a member that stepped aside
NEEDED = {"Launch", "AddToLoadBalancer"}


def recheck(run: Run) -> Result:
    if reasons := why_blind(run.instance, clock.now()):
        return Wait(30, reasons[0])
    return cleared(run) or Done(run.reading.assessment.why or "the evidence stands")


def cleared(run: Run) -> Result | None:
    """An `Undo` where the evidence no longer carries this repair; None where it does."""
    if run.repair.action not in ("REPLACE", "REBOOT", "RELOCATE") or run.facts.get("insisted"):
        return None
    seen = run.reading.assessment
    if run.repair.automatic:
        if seen.verdict not in BAD:
            return Undo(f"the evidence now reads {seen.verdict}: {seen.why}")
        values = run.reading.policy.values
        answer = resolve(seen.verdict, seen.codes, seen.action, seen.may_act, values, raised=seen.raised)
        if answer.mode != "auto" and "dead_host" not in run.repair.allowed:
            return Undo(f"the policy now says {answer.mode}: {answer.why}")
    elif seen.verdict in GOOD:
        return Undo(f"the evidence cleared: {seen.why or seen.verdict}")
    return None


def still_bad(run: Run) -> Result | None:
    """The guard of an irreversible step: nothing newer says recovered, and the sources can see."""
    if reasons := why_blind(run.instance, clock.now()):
        return Wait(30, reasons[0])
    run.__dict__.pop("reading", None)
    seen = run.reading.assessment
    if seen.verdict in GOOD and not run.facts.get("insisted"):
        return Undo(f"recovered before the irreversible step: {seen.why or seen.verdict}")
    return None


def room(run: Run) -> Result:
    """A replacement can be had and nothing forbids the end of this machine; else nothing is drained."""
    blocker = _protected(run) if run.repair.action == "REPLACE" else None
    blocker = blocker or (_room_in_group(run) if run.repair.owner == "GROUP" else _room_outside(run))
    return End(False, "NO_ROOM", blocker) if blocker else Done(_said(run))


def _said(run: Run) -> str:
    group = run.look.group
    if not group:
        return "nothing forbids it"
    return f"group {group['AutoScalingGroupName']}: desired {group['DesiredCapacity']} of at most {group['MaxSize']}"


def _protected(run: Run) -> str | None:
    answer = ask_aws(
        run.client("ec2").describe_instance_attribute,
        InstanceId=run.instance.instance_id,
        Attribute="disableApiTermination",
    )
    told = (answer.get("DisableApiTermination") or {}).get("Value")
    if told is None:
        raise AwsTrouble("DescribeInstanceAttribute does not tell whether termination is protected")
    if told:
        return "Termination protection is on: switch it off on the instance, then approve again"
    return None


def _room_in_group(run: Run) -> str | None:
    look, group = run.look, run.look.group
    if group is None or not look.lifecycle:
        return "It is no longer a member of its Auto Scaling group"
    name = group["AutoScalingGroupName"]
    suspended = {p["ProcessName"] for p in group.get("SuspendedProcesses", [])}
    refreshes = ask_aws(run.client("autoscaling").describe_instance_refreshes, AutoScalingGroupName=name)
    if under_way(refreshes["InstanceRefreshes"]):
        return f"An instance refresh of {name} is under way: it would wait for, or end, a member in Standby"
    if look.lifecycle == "Standby" and not standby_of_ours(run):
        return "Somebody else put it into Standby"
    if run.repair.action == "REBOOT":
        if look.lifecycle != "Standby" and group["DesiredCapacity"] - 1 < group["MinSize"]:
            return f"{name} is at its minimum ({group['MinSize']}): lower it by one, or replace instead"
        return None
    if "Launch" in suspended:
        return f"Launching is suspended in {name}: resume the process, then approve again"
    if group["DesiredCapacity"] + 1 > group["MaxSize"]:
        return f"{name} is at its maximum ({group['MaxSize']}): raise it by one, then approve again"
    version = _version_of(run, group)
    if version is None:
        return f"{name} can launch nothing: its launch template no longer exists. Give it one, then approve again"
    return _failed_version(run, *version) or _no_reserved_room(run)


def _room_outside(run: Run) -> str | None:
    if run.repair.action == "REPLACE":
        if not (run.instance.template_id and run.instance.template_version):
            return "It was not started from a launch template: there is nothing to start a replacement from"
        answer = ask_about(
            run.client("ec2").describe_launch_template_versions,
            LaunchTemplateId=run.instance.template_id,
            Versions=[run.instance.template_version],
        )
        if answer is not None and not answer["LaunchTemplateVersions"]:
            raise AwsTrouble("DescribeLaunchTemplateVersions tells nothing of the version")
        if answer is None:
            return f"Version {run.instance.template_version} of its launch template no longer exists"
        if again := spot.starts_another(run, answer["LaunchTemplateVersions"][0].get("LaunchTemplateData")):
            return again
        at = run.instance
        return _failed_version(run, at.template_id, at.template_version) or _no_reserved_room(run)
    return None


def _version_of(run: Run, group: dict[str, Any]) -> tuple[str, str] | None:
    """The launch template and the version's number that the group launches from now; empty where it names none.

    None where EC2 says that what the group names does not exist.
    """
    mixed = ((group.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}).get("LaunchTemplateSpecification")
    named = group.get("LaunchTemplate") or mixed or {}
    template, version = named.get("LaunchTemplateId", ""), named.get("Version") or "$Default"
    if not template:
        return "", version
    answer = ask_about(
        run.client("ec2").describe_launch_template_versions, LaunchTemplateId=template, Versions=[version]
    )
    if answer is None:
        return None
    if not answer["LaunchTemplateVersions"]:
        raise AwsTrouble("DescribeLaunchTemplateVersions tells nothing of the group's version")
    return template, str(answer["LaunchTemplateVersions"][0]["VersionNumber"])


def _failed_version(run: Run, template: str, version: str) -> str | None:
    """A version that has failed is not tried again by itself; a person who approves may know that it was mended."""
    if not run.repair.automatic or run.repair.pool is None:
        return None
    return launches.version_that_failed(run.repair.pool, template, version) or None


def _no_reserved_room(run: Run) -> str | None:
    """A full reservation or Capacity Block cannot start before it stops."""
    reservation = run.look.ec2.get("CapacityReservationId")
    if not reservation or "terminate_first" in run.repair.allowed:
        return None
    answer = ask_about(run.client("ec2").describe_capacity_reservations, CapacityReservationIds=[reservation])
    if answer is None:
        return f"Its reservation {reservation} no longer exists: what would replace it is not known"
    if not answer["CapacityReservations"]:
        raise AwsTrouble("DescribeCapacityReservations tells nothing of its reservation")
    free = [r.get("AvailableInstanceCount") for r in answer["CapacityReservations"]]
    if None in free:
        raise AwsTrouble("DescribeCapacityReservations does not tell how much of its reservation is free")
    if sum(free) < 1:
        return f"Its reservation {reservation} is full: nothing can be started before this machine is given back"
    return None


def keep(run: Run) -> Result:
    """Keep what a drain, reboot or termination destroys. Missing output never holds a repair up; where a replacement
    would be started must be known."""
    from healthboard.fleet.evidence import freeze

    try:
        console = run.client("ec2").get_console_output(InstanceId=run.instance.instance_id, Latest=True)
        output = str(console.get("Output", ""))[-65536:]
        note = f"{len(output)} characters of console output"
    except (ClientError, BotoCoreError) as error:
        output, note = "", f"no console output: {error}"
    seen = run.reading
    gpus = [
        {"uuid": g.uuid, "serial": g.serial, "index": g.index, "status": g.status, "measurements": g.measurements}
        for g in run.instance.gpus.all()
    ]
    with run.fenced():
        record(
            "repair.evidence_kept", f"repair:{run.repair.pk}", f"evidence kept: {note}", actor=WORKER,
            instance=run.instance, repair_id=run.repair.pk,
            payload={
                "console": output, "gpus": gpus,
                "evidence": freeze(seen.events, seen.readings, seen.context, thresholds=seen.thresholds, now=seen.at),
            },
        )  # fmt: skip
    group = run.look.group or {}
    launches_itself = run.repair.action == "REPLACE" and run.repair.owner == "TEMPLATE"
    run.remember(
        boot_before=run.instance.boot_id,
        # of before the first step out of the group: a heavier action that follows a reboot finds it lowered
        desired_before=run.facts.get("desired_before", group.get("DesiredCapacity")),
        group=group.get("AutoScalingGroupName"),
        launch_time=str(run.look.ec2.get("LaunchTime", "")),
        purchase=run.instance.purchase,
        **({} if run.look.container else {"unregistered": True}),
        **({"launch_from": origin.kept(run)} if launches_itself else {}),
    )
    return Done(note) if run.look.container or run.repair.action != "DRAIN" else Skip("not registered with ECS")

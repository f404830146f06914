"""Prove that the replacement serves, and end the old machine."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from healthboard import clock
from healthboard.fleet import gaps
from healthboard.fleet.models import Instance
from healthboard.repairs import launches, lifecycle
from healthboard.repairs.models import Launch
from workers.repair import zones
from workers.repair.look import ask_aws
from workers.repair.results import Ask, Back, Done, End, Result, Undo, Wait
from workers.repair.run import PASSING, Run
from workers.repair.serving import why_not_serving
from workers.repair.steps.launch import ANOTHER, FIRST, failed
from workers.repair.steps.leave import _AGAIN, _UNDO, TRIES, _choice, has_left, set_active, still_there
from workers.repair.steps.prepare import _protected, still_bad

#: how a group names a launch for itself, with the instance where there is one; not one into its warm pool, whose instances
#: are none of its members and serve nobody
_LAUNCH = re.compile(r"Launching a new EC2 instance(?P<warm> from warm pool)?(?:: (?P<id>i-[0-9a-f]+)|\.|$)")
#: how far our clock and AWS's may be apart
CLOCKS_APART = timedelta(minutes=5)
#: as EC2 names the zone in which it has no capacity
_ZONE = re.compile(r"requested \(([a-z]{2}(?:-[a-z]+)+-\d[a-z])\)")


def replacement(run: Run) -> Result:
    """Wait until it serves: registered, connected, same GPUs, good, soaked."""
    new = run.replacement()
    if new is None:
        return _awaited(run, "the group has launched nothing")
    problem = why_not_serving(run, new)
    if problem is not None and (problem.gone or has_ended(run, new)):
        ended(run, new)
        if run.repair.owner == "GROUP":
            return _awaited(run, f"{new} has ended, and the group has launched nothing since")
        return Ask(f"The replacement {new} has ended. The drained machine is kept.", (ANOTHER, _UNDO))
    if problem is None:
        since = run.facts.get("serving_since")
        if since is None:
            run.remember(serving_since=clock.now().isoformat())
            return Wait(5, f"{new} serves; soaking")
        soaked = clock.now() - gaps.counted_from(datetime.fromisoformat(since))
        if soaked >= run.span("soak_s", 300):
            launches.note(run.repair, Launch.Outcome.SERVED, zone=new.zone)
            run.remember(served=new.instance_id)
            return Done(f"{new} serves in {new.zone}, soaked for {soaked.total_seconds():.0f} s")
        return Wait(5, f"{new} serves; soaking")
    if run.facts.get("serving_since"):
        run.remember(serving_since=None)  # soak means without a break
    choices = (_choice("wait_longer", "Wait longer"), _UNDO)
    if problem.final:
        return failed(run, Ask(f"The replacement {new} does not serve: {problem.why}", choices), new.zone)
    if run.late("launch_timeout_s", 900):
        return failed(run, Ask(f"The replacement {new} does not serve: {problem.why}", choices), new.zone)
    return Wait(5, f"{new}: {problem.why}")


def _awaited(run: Run, nothing: str) -> Result:
    """The group's launch, once it is there; `nothing`: what is said where the group says nothing of it."""
    if launched_by_group(run):
        return replacement(run)
    said = run.facts.get("group_says")
    if run.late("launch_timeout_s", 900):
        return failed(run, Ask(
            f"No replacement: {_with_zones(run, said or nothing)}. The drained machine is kept.",
            (_choice("wait_longer", "Wait longer"), *(() if run.look.gone else (FIRST, _UNDO))),
        ))  # fmt: skip
    return Wait(5, _with_zones(run, said or "the group is starting a replacement"))


def has_ended(run: Run, new: Instance) -> bool:
    """It was seen to have ended, also where EC2 has forgotten it since."""
    return new.instance_id in run.facts.get("ended_launches", ())


def ended(run: Run, new: Instance) -> None:
    """What was launched has ended by itself. A group launches the next one without being asked, and that is ours then; of a
    launch template's machine a person says whether there is to be another."""
    if has_ended(run, new):
        return
    if run.facts.get("served") != new.instance_id:
        launches.note(run.repair, Launch.Outcome.FAILED, zone=new.zone, why=f"{new} ended before it served")
    another = (
        "the group launches another" if run.repair.owner == "GROUP" else "another is launched by a person's word only"
    )
    lifecycle.replacement_ended(run.repair, another)


def _with_zones(run: Run, why: str) -> str:
    """A group chooses its zones itself; what is known against them is said."""
    return "; ".join(filter(None, (why.rstrip("."), zones.told(run))))


def launched_by_group(run: Run) -> str | None:
    """Attribute the group's launch by its scaling activity, and bind it under the pool's lock."""
    name = (run.look.group or {}).get("AutoScalingGroupName") or run.facts.get("group")
    begun = run.facts.get("standby_at")
    if not name or not begun:
        return None
    answer = ask_aws(run.client("autoscaling").describe_scaling_activities, AutoScalingGroupName=name, MaxRecords=100)
    activities = sorted(answer["Activities"], key=lambda a: a["StartTime"])
    asked = datetime.fromisoformat(begun)
    after = _by_its_clock(run, activities, asked)
    for activity in activities:
        launch = _LAUNCH.match(activity["Description"])
        if activity["StartTime"] < after or launch is None or launch["id"] in run.facts.get("ended_launches", ()):
            continue
        if activity["StatusCode"] in ("Failed", "Cancelled"):
            said = activity.get("StatusMessage") or "its launch failed"
            run.remember(group_says=said)
            for zone in set(_ZONE.findall(said)) if "apacity" in said else ():
                launches.note(run.repair, Launch.Outcome.NO_CAPACITY, zone=zone, why=said)
            continue
        instance_id = launch["id"]
        if not launch["warm"] and Instance.objects.filter(instance_id=instance_id, first_seen_at__lt=asked).exists():
            continue  # it was there before the group was asked
        if instance_id and lifecycle.assign_replacement(run.repair, instance_id):
            return instance_id
    return None


def _by_its_clock(run: Run, activities: list[dict[str, Any]], asked: datetime) -> datetime:
    """When the group was asked for a launch, by AWS's clock, since its launches are told by that one: our move to Standby
    is among its activities. Where it is not, or is of long before, by ours, as far off as it may be."""
    earliest = asked - CLOCKS_APART
    move = f"Moving EC2 instance to Standby: {run.instance.instance_id}"
    return min(
        (a["StartTime"] for a in activities if a["Description"] == move and a["StartTime"] >= earliest),
        default=earliest,
    )


def detach(run: Run) -> Result:
    """From Standby, without decrement: desired capacity stays, and the member is nobody's, so it must be ended."""
    look = run.look
    if not look.lifecycle:
        return Done("no longer a member of the group")
    if guard := may_end(run):
        return guard
    ours = run.calls("DetachInstances")
    if run.settling(ours) or look.lifecycle.startswith("Detach"):
        return Wait(2, "detaching")
    if look.lifecycle != "Standby":
        return Ask(f"The group shows it as {look.lifecycle}, no longer Standby.", (_AGAIN, _UNDO))
    if run.tries(ours) >= TRIES:
        return Ask("The group does not let it go.", (_AGAIN, _UNDO))
    if _protected(run):  # outside its group it could not be ended, and nothing leads back
        return Ask("Termination protection is on: switch it off on the instance, then try again.", (_AGAIN, _UNDO))
    outcome, answer = run.change(
        "autoscaling", "DetachInstances",
        {
            "AutoScalingGroupName": look.group["AutoScalingGroupName"],
            "InstanceIds": [run.instance.instance_id],
            "ShouldDecrementDesiredCapacity": False,
        },
        irreversible=True,
    )  # fmt: skip
    if outcome in ("ok", "unknown") or PASSING.search(outcome):
        return Wait(2)
    return Ask(f"Auto Scaling refused: {outcome} {answer.get('message', '')}", (_AGAIN, _UNDO))


def terminate(run: Run) -> Result:
    look = run.look
    if look.state in ("terminated", "shutting-down"):
        if run.calls("TerminateInstances"):
            return Done("terminated") if look.state == "terminated" else Wait(5, "shutting down")
        return Done("somebody else terminated it meanwhile")
    ours = run.calls("TerminateInstances")
    if not look.state:
        return Done("EC2 no longer lists it") if ours else Wait(10, "EC2 does not list it; that proves nothing yet")
    if run.settling(ours):
        return Wait(3, "waiting for EC2 to show the end")
    if guard := may_end(run):
        return guard
    if look.lifecycle and run.repair.owner == "GROUP":
        return Ask(f"It is back in its group as {look.lifecycle}.", (_AGAIN, _UNDO))
    if run.tries(ours) >= TRIES:
        return Ask("EC2 does not terminate it.", (_AGAIN,))
    outcome, answer = run.change(
        "ec2", "TerminateInstances", {"InstanceIds": [run.instance.instance_id]}, irreversible=True
    )
    if outcome in ("ok", "unknown") or PASSING.search(outcome):
        return Wait(3)
    return Ask(f"EC2 refused: {outcome} {answer.get('message', '')}", (_AGAIN, _UNDO))


def may_end(run: Run) -> Result | None:
    """INV3 and INV7, read anew directly before the end: replacement serves, tasks have left, nothing says recovered."""
    if bad := still_bad(run):
        return bad
    if "terminate_first" not in run.repair.allowed:
        new = run.replacement()
        if new is None:
            return Undo("there is no replacement")
        if problem := why_not_serving(run, new):
            if problem.gone:
                return Back("replacement", f"{new} has ended: another one has to serve first")
            return _held_up(run, f"the replacement stopped serving: {problem.why}")
    if again := set_active(run):
        return again
    if has_left(run):
        return None
    why = still_there(run)
    if "force_tasks" in run.repair.allowed:  # others than those that people gave up: they are awaited, or asked about
        return Back("tasks", why)
    return _held_up(run, why)


def _held_up(run: Run, why: str) -> Result:
    """What stands against the end for too long is a person's to answer."""
    if not run.late("launch_timeout_s", 900):
        return Wait(10, why)
    return Ask(f"It cannot be ended: {why}", (_choice("wait_longer", "Wait longer"), _UNDO))


def deregister(run: Run) -> Result:
    """ECS keeps a terminated instance whose agent was away: remove it."""
    look = run.look
    if look.container is None or look.ecs_status in ("INACTIVE", "DEREGISTERING"):
        return Done("no longer registered")
    if not look.gone:
        return Ask("It is still registered, and not terminated.", (_AGAIN,))
    ours = run.calls("DeregisterContainerInstance")
    if run.settling(ours) or (look.connected and run.in_step_for() < clock.scaled(120)):
        return Wait(5, "ECS removes it by itself")
    if run.tries(ours) >= TRIES:
        return Ask("ECS does not let it be deregistered.", (_AGAIN,))
    outcome, answer = run.change(
        "ecs", "DeregisterContainerInstance",
        {"cluster": run.instance.cluster.name, "containerInstance": run.instance.container_arn, "force": True},
        irreversible=True,
    )  # fmt: skip
    if outcome in ("ok", "unknown") or PASSING.search(outcome):
        return Wait(2)
    return Ask(f"ECS refused: {outcome} {answer.get('message', '')}", (_AGAIN,))


def watch(run: Run) -> Result:
    """The group replaces it by itself: nothing is launched or terminated here."""
    look = run.look
    if look.gone or (not look.state and look.container is None):
        run.remember(replaced_by_group=True)
        return Done("the group terminated it")
    if look.group is None or not look.lifecycle:
        return End(False, "LEFT_GROUP", "it left its group, which therefore will not replace it")
    if run.look.lifecycle == "InService" and run.reading.assessment.verdict in ("HEALTHY", "WATCH", "WORKLOAD"):
        return Undo("it recovered before the group replaced it")
    if run.late("launch_timeout_s", 900):
        return Ask(
            "The group has not replaced it.",
            (_choice("wait_longer", "Wait longer"), _UNDO),
        )
    return Wait(10, f"the group replaces it by itself (now {look.lifecycle})")

"""Taking back what this repair did, and nothing that anybody else did."""

from __future__ import annotations

from healthboard import clock
from healthboard.fleet.models import Instance
from healthboard.fleet.seeing import wanted
from healthboard.repairs import lifecycle
from workers.repair.look import Look, ask_aws, look_at
from workers.repair.results import Ask, Done, Result, Skip, Wait
from workers.repair.run import Run
from workers.repair.steps.leave import (
    _AGAIN,
    TRIES,
    _after,
    _choice,
    _state,
    heard_again,
    in_group_again,
    standby_of_ours,
)
from workers.repair.steps.replace import ended, has_ended, launched_by_group

REMOVE = "TerminateInstanceInAutoScalingGroup"
_LEAVE = _choice("leave", "Leave it as it is")


def undo_standby(run: Run) -> Result:
    look = run.look
    entered = run.calls("EnterStandby")
    ours = run.calls("ExitStandby")
    if look.lifecycle == "InService" and not look.gone and not ours and run.settling(entered):
        return Wait(3, "whether it enters Standby shows in a moment")
    if look.lifecycle == "InService" and entered:
        in_group_again(run)
    if look.gone or not standby_of_ours(run) or look.lifecycle in ("InService", ""):
        return Skip("it is not in Standby because of us")
    if look.lifecycle.startswith("Pending") or look.lifecycle == "EnteringStandby" or run.settling(ours):
        return Wait(3, f"rejoining ({look.lifecycle})")
    if run.tries(ours) >= TRIES:
        return Ask("The group does not take it back.", (_AGAIN, _LEAVE))
    group = look.group["AutoScalingGroupName"]
    request = {"AutoScalingGroupName": group, "InstanceIds": [run.instance.instance_id]}
    outcome, answer = run.change("autoscaling", "ExitStandby", request)
    return _after(outcome, answer, "Auto Scaling")


def undo_drain(run: Run) -> Result:
    look = run.look
    drained = run.calls("UpdateContainerInstancesState", **_state(run, "DRAINING"))
    if look.container is None or look.gone:
        return Skip("no longer registered")
    if run.facts.get("drained_by_other") or not (drained or run.facts.get("inherited_drain")):
        return Skip("we did not drain it")
    ours = run.calls("UpdateContainerInstancesState", **_state(run, "ACTIVE"))
    if look.ecs_status == "ACTIVE":
        if not ours and run.settling(drained):
            return Wait(3, "whether our drain took shows in a moment")
        heard_again(run)
        return Done("ACTIVE")
    if run.settling(ours):
        return Wait(3, "waiting for ECS to show ACTIVE")
    if run.tries(ours) >= TRIES:
        return Ask("ECS does not take it back.", (_AGAIN, _LEAVE))
    outcome, answer = run.change("ecs", "UpdateContainerInstancesState", _state(run, "ACTIVE"))
    return _after(outcome, answer, "ECS")


def undo_surplus(run: Run) -> Result:
    """Drain our own launch, if its place is not needed: the group would pick another victim by itself."""
    new = _surplus(run)
    if new is None:
        return Skip("nothing of ours is left over")
    if not isinstance(new, Instance):
        return new
    look = look_at(new)
    if look.gone:
        return Done(f"{new} is gone already")
    return _emptied(run, new, look) or Done(
        f"{new} is {'not registered with ECS' if look.container is None else 'empty'}"
    )


def _emptied(run: Run, new: Instance, look: Look) -> Result | None:
    """What has to be done or waited for until nothing runs on our surplus and nothing will: None where ECS does not know
    it, or has drained it."""
    if look.container is None:
        return _may_register(run, new)
    if look.ecs_status == "DRAINING":
        if look.tasks == 0:
            return None
        left = f"{'?' if look.tasks is None else look.tasks} tasks"
        if run.late("drain_timeout_s", 1800):
            return Ask(f"{left} stay on our surplus instance {new}.", (_AGAIN, _LEAVE))
        return Wait(5, f"{left} still have to leave {new}")
    request = {
        "cluster": new.cluster.name,
        "containerInstances": [new.container_arn],
        "status": "DRAINING",
    }
    if run.settling(run.calls("UpdateContainerInstancesState", target=new.instance_id, **request)):
        return Wait(3, f"draining {new}")
    outcome, answer = run.change("ecs", "UpdateContainerInstancesState", request, target=new.instance_id)
    return _after(outcome, answer, "ECS")


def undo_launch(run: Run) -> Result:
    new = _surplus(run)
    if new is None:
        return Skip("nothing of ours is left over")
    if not isinstance(new, Instance):
        return new
    look: Look = look_at(new)
    if look.gone:
        return Done(f"{new} was ended")
    in_group = bool(look.lifecycle)
    operation = REMOVE if in_group else "TerminateInstances"
    ours = run.calls(operation, target=new.instance_id)
    if run.settling(ours):
        return Wait(3, f"ending {new}")
    if unready := _emptied(run, new, look):  # it may have registered with ECS, and taken tasks, since the step before
        return unready
    if run.tries(ours) >= TRIES:
        return Ask(f"Our surplus instance {new} cannot be ended.", (_AGAIN, _LEAVE))
    if in_group:
        request = {"InstanceId": new.instance_id, "ShouldDecrementDesiredCapacity": True}
        outcome, answer = run.change("autoscaling", operation, request, target=new.instance_id)
    else:
        outcome, answer = run.change("ec2", operation, {"InstanceIds": [new.instance_id]}, target=new.instance_id)
    return _after(outcome, answer, "AWS")


def _may_register(run: Run, new: Instance) -> Wait | Ask | None:
    """What we hold of it names no registration with ECS: that proves nothing by itself, tasks may have come since.

    None once a full round that began in this step, and ECS's own list after it, know nothing of it.
    """
    cluster = new.cluster or run.instance.cluster
    if cluster is None:
        return None
    told = wanted(run.instance)["ecs"]
    began = told.attempted_at if told is not None else None
    if began is None or began <= run.step.started_at or told.succeeded_at is None or told.succeeded_at < began:
        why = f"whether {new} has registered with ECS shows with its next full round"
    else:
        answer = ask_aws(
            run.client("ecs").list_container_instances,
            cluster=cluster.name, filter=f"ec2InstanceId == {new.instance_id}",
        )  # fmt: skip
        if not answer["containerInstanceArns"]:
            return None
        why = f"{new} has registered with ECS: what runs on it shows with the next full round"
    if run.late("drain_timeout_s", 1800):
        return Ask(f"Our surplus instance {new} cannot be ended: {why}.", (_AGAIN, _LEAVE))
    return Wait(5, why)


def _surplus(run: Run) -> Instance | Result | None:
    """What this repair launched and nobody needs now that the old machine stays; a `Wait` or `Ask` while it is sought."""
    new = run.replacement()
    if new is None or _ended_by_itself(run, new):
        sought = _sought_in_group(run) if run.repair.owner == "GROUP" else _sought_by_token(run)
        if sought is not None:
            return sought
        new, before = run.replacement(), new
        if new == before:
            return None
    if run.repair.owner != "GROUP" and run.look.gone:
        return None
    if new.gone_at is not None:
        return None
    member = look_at(new)
    if run.repair.owner == "GROUP" and not member.lifecycle and not member.gone:
        return _no_member(run, new)
    before = run.facts.get("desired_before")
    if member.lifecycle and member.group and before is not None and member.group["DesiredCapacity"] <= before:
        return None  # the group wants it: ended, it would be launched anew
    return new


def _ended_by_itself(run: Run, new: Instance) -> bool:
    """It ended, and not because of us: what the group, or a person by this repair, launched since is the one too many."""
    if has_ended(run, new):
        return True
    if run.repair.owner != "GROUP" or run.calls(REMOVE, target=new.instance_id) or not look_at(new).gone:
        return False
    ended(run, new)
    return True


def _no_member(run: Run, new: Instance) -> Result:
    """What is not in the group is not what our Standby made it launch, or others took it out: it is not ours to end."""
    if run.in_step_for() < clock.scaled(300):
        return Wait(5, f"whether {new} is a member of the group shows in a moment")
    return Ask(f"{new} was launched for this repair and is no member of its group: it is not ended.", (_AGAIN, _LEAVE))


def _sought_in_group(run: Run) -> Result | None:
    """Our Standby made the group launch; where that is not attributed yet, coming back left it one too large."""
    group, before = run.look.group, run.facts.get("desired_before")
    if group is None or before is None or not run.calls("ExitStandby") or group["DesiredCapacity"] <= before:
        return None
    if launched_by_group(run):
        return None
    name = group["AutoScalingGroupName"]
    if run.late("launch_timeout_s", 900):
        return Ask(f"{name} wants one more than before, and its launch cannot be found.", (_AGAIN, _LEAVE))
    return Wait(5, f"looking for what {name} launched because of us")


def _sought_by_token(run: Run) -> Result | None:
    """A launch whose answer was lost is found by its token; that none is found yet proves nothing for a while."""
    made = run.calls("RunInstances")
    if not made:
        return None
    wanted = [{"Name": "client-token", "Values": [made[-1].token]}]
    answer = ask_aws(run.client("ec2").describe_instances, Filters=wanted)
    found = [i["InstanceId"] for r in answer["Reservations"] for i in r["Instances"]]
    if found:
        lifecycle.assign_replacement(run.repair, found[0])
        return None
    return Wait(5, "looking for what was launched because of us") if run.settling(made, 300) else None

"""Taking back what this repair did, and nothing that anybody else did."""

from __future__ import annotations

from healthboard import clock
from healthboard.fleet.models import Instance
from workers.repair.look import Look, look_at
from workers.repair.results import Ask, Done, Result, Skip, Wait
from workers.repair.run import Run
from workers.repair.steps.leave import _AGAIN, TRIES, _after, _choice, _state

_LEAVE = _choice("leave", "Leave it as it is")


def undo_standby(run: Run) -> Result:
    look = run.look
    entered = run.calls("EnterStandby")
    if look.gone or not entered or look.lifecycle in ("InService", ""):
        return Skip("it is not in Standby because of us")
    ours = run.calls("ExitStandby")
    if look.lifecycle.startswith("Pending") or look.lifecycle == "EnteringStandby" or run.settling(ours):
        return Wait(3, f"rejoining ({look.lifecycle})")
    if len(ours) >= TRIES:
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
    if look.ecs_status == "ACTIVE":
        return Done("ACTIVE")
    ours = run.calls("UpdateContainerInstancesState", **_state(run, "ACTIVE"))
    if run.settling(ours):
        return Wait(3, "waiting for ECS to show ACTIVE")
    if len(ours) >= TRIES:
        return Ask("ECS does not take it back.", (_AGAIN, _LEAVE))
    outcome, answer = run.change("ecs", "UpdateContainerInstancesState", _state(run, "ACTIVE"))
    return _after(outcome, answer, "ECS")


def undo_surplus(run: Run) -> Result:
    """Drain our own launch, if its place is not needed: the group would pick another victim by itself."""
    new = _surplus(run)
    if new is None:
        return Skip("nothing of ours is left over")
    look = look_at(new)
    if look.gone:
        return Done(f"{new} is gone already")
    if look.container is None or (look.ecs_status == "DRAINING" and look.tasks == 0):
        return Done(f"{new} is empty")
    if look.ecs_status == "DRAINING":
        if run.late("drain_timeout_s", 1800):
            return Ask(f"{look.tasks} tasks stay on our surplus instance {new}.", (_AGAIN, _LEAVE))
        return Wait(5, f"{look.tasks} tasks still have to leave {new}")
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
    look: Look = look_at(new)
    if look.gone:
        return Done(f"{new} was ended")
    in_group = bool(look.lifecycle)
    operation = "TerminateInstanceInAutoScalingGroup" if in_group else "TerminateInstances"
    ours = run.calls(operation, target=new.instance_id)
    if run.settling(ours):
        return Wait(3, f"ending {new}")
    if look.tasks:
        return Wait(5, f"{look.tasks} tasks are on {new} again")
    if len(ours) >= TRIES:
        return Ask(f"Our surplus instance {new} cannot be ended.", (_AGAIN, _LEAVE))
    if in_group:
        before, group = run.facts.get("desired_before"), look.group
        if before is not None and group["DesiredCapacity"] <= before:
            return Skip(f"the group needs {new}: desired capacity is {group['DesiredCapacity']}")
        request = {"InstanceId": new.instance_id, "ShouldDecrementDesiredCapacity": True}
        outcome, answer = run.change("autoscaling", operation, request, target=new.instance_id)
    else:
        outcome, answer = run.change("ec2", operation, {"InstanceIds": [new.instance_id]}, target=new.instance_id)
    return _after(outcome, answer, "AWS")


def _surplus(run: Run) -> Instance | None:
    """What this repair launched, while the old machine lives on."""
    new = run.repair.replacement
    if new is None and (made := run.facts.get("launched_id")):
        new = Instance.objects.filter(account=run.instance.account, instance_id=made).first()
    if new is None or run.look.gone:
        return None
    new.refresh_from_db()
    return new if new.gone_at is None or clock.now() < new.gone_at else None

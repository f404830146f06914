"""Taking the machine out of service: drain, step out of the group, wait until the work has left."""

from __future__ import annotations

from healthboard import clock, words
from healthboard.fleet.models import Head
from workers.repair.left import counted_as_gone, dead_host, given_up, to_give_up, unkillable
from workers.repair.look import tasks_on
from workers.repair.results import Ask, Done, Result, Skip, Undo, Wait
from workers.repair.run import PASSING, Run

#: the same call is made at most so often in one step before a person is asked
TRIES = 5


def drain(run: Run) -> Result:
    look = run.look
    if look.container is None:
        return Skip("not registered with ECS")
    wanted = _state(run, "DRAINING")
    states = run.calls("UpdateContainerInstancesState", **{k: v for k, v in wanted.items() if k != "status"})
    ours = [call for call in states if call.request["status"] == "DRAINING"]
    if look.ecs_status == "DRAINING":
        # its reporter and exporters may fall silent now because of us: that blocks nothing later
        _silence(run, ours=True)
        # of a repair that climbed too: its calls are those of every rung, and somebody else's drain stays theirs
        known = bool(states) and states[-1].request["status"] == "DRAINING"
        run.remember(drained_by_other=not known)
        return Done("DRAINING" if known else "somebody else had drained it already")
    if look.ecs_status != "ACTIVE":
        return Ask(f"ECS shows it as {look.ecs_status}; only ACTIVE can be drained.", (_AGAIN, _UNDO))
    if run.settling(ours):
        return Wait(3, "waiting for ECS to show DRAINING")
    if run.tries(ours) >= TRIES:
        return Ask("ECS does not take the drain.", (_AGAIN, _UNDO))
    if run.facts.get("drained_by_other"):  # an earlier attempt met it DRAINING, and it has been ACTIVE since
        run.remember(drained_by_other=False)
    outcome, answer = run.change("ecs", "UpdateContainerInstancesState", wanted)
    return _after(outcome, answer, "ECS")


def heard_again(run: Run) -> None:
    """It serves again: from now on silence is silence, and no longer because of us."""
    _silence(run, ours=False)


def _silence(run: Run, *, ours: bool) -> None:
    with run.fenced():
        Head.objects.filter(instance=run.instance).update(ended_by_us=ours)


def _state(run: Run, status: str) -> dict:
    return {
        "cluster": run.instance.cluster.name,
        "containerInstances": [run.instance.container_arn],
        "status": status,
    }


def _after(outcome: str, answer: dict, who: str) -> Result:
    if outcome in ("ok", "unknown") or PASSING.search(outcome):
        return Wait(2, "" if outcome == "ok" else f"{who} answered {outcome}; reading back")
    return Ask(f"{who} refused: {outcome} {answer.get('message', '')}".strip(), (_AGAIN, _UNDO))


def standby(run: Run) -> Result:
    """Out of the group without decrement: this is the launch intent, since the group starts the replacement."""
    look = run.look
    if look.lifecycle == "Standby" and standby_of_ours(run):
        if run.facts.get("decremented"):
            return raise_desired(run)
        return Done("in Standby; the group starts the replacement")
    return _enter_standby(run, decrement=False)


def step_aside(run: Run) -> Result:
    if run.look.lifecycle == "Standby" and standby_of_ours(run):
        return Done("in Standby; the group leaves it alone")
    if not run.facts.get("decremented"):
        run.remember(decremented=True)
    return _enter_standby(run, decrement=True)


def _enter_standby(run: Run, *, decrement: bool) -> Result:
    look = run.look
    if look.group is None or not look.lifecycle:
        return Undo("it left its Auto Scaling group meanwhile")
    name = look.group["AutoScalingGroupName"]
    ours = run.calls("EnterStandby")
    if look.lifecycle == "EnteringStandby" or run.settling(ours):
        return Wait(3, "entering Standby")
    if look.lifecycle != "InService":
        return Ask(f"The group shows it as {look.lifecycle}.", (_AGAIN, _UNDO))
    if run.tries(ours) >= TRIES:
        return Ask("The group does not let it into Standby.", (_AGAIN, _UNDO))
    if run.facts.get("standby_at") is None:
        run.remember(standby_at=clock.now().isoformat(), desired_before=look.group["DesiredCapacity"])
    outcome, answer = run.change(
        "autoscaling",
        "EnterStandby",
        {
            "AutoScalingGroupName": name,
            "InstanceIds": [run.instance.instance_id],
            "ShouldDecrementDesiredCapacity": decrement,
        },
    )
    return _after(outcome, answer, "Auto Scaling")


def raise_desired(run: Run) -> Result:
    """It stands aside from an earlier reboot that lowered desired capacity: its place goes back on, one and no more.

    What others made of the group's size meanwhile stays: one is added to what it is at the first intent, and a repeat
    sends that same number.
    """
    if not _lowered(run):
        return _raised(run, "in Standby; the group starts the replacement")
    group, ours = run.look.group, run.calls("SetDesiredCapacity")
    now = group["DesiredCapacity"]
    target = ours[-1].request["DesiredCapacity"] if ours else now + 1
    if ours and now >= target:
        return _raised(run, f"desired capacity is {now} again; the group starts the replacement")
    if run.settling(ours):
        return Wait(3, "raising desired capacity")
    if ours and (ours[-1].outcome == "ok" or now != target - 1):
        return _raised(run, f"somebody else has set desired capacity to {now} since")
    if run.tries(ours) >= TRIES:
        return Ask("The group does not take the desired capacity.", (_AGAIN, _UNDO))
    if not ours:
        if run.look.gone and now >= run.facts["desired_before"]:  # it may have been taken out of Standby, and raised so
            return _raised(run, f"desired capacity is {now} again")
        if now >= group["MaxSize"]:
            return Ask(f"Its group is as large as it may be ({now}): raise its maximum first.", (_AGAIN, _UNDO))
        run.remember(standby_at=clock.now().isoformat(), desired_before=target)
    request = {"AutoScalingGroupName": group["AutoScalingGroupName"], "DesiredCapacity": target, "HonorCooldown": False}
    outcome, answer = run.change("autoscaling", "SetDesiredCapacity", request)
    return _after(outcome, answer, "Auto Scaling")


def standby_of_ours(run: Run) -> bool:
    """Whether we put it into Standby and have not brought it back since: after that, a Standby that a later rung meets is
    somebody else's."""
    entered = run.calls("EnterStandby")
    return bool(entered) and entered[-1].pk != run.facts.get("rejoined")


def in_group_again(run: Run) -> None:
    """Its place, which stepping aside may have taken off desired capacity, is back."""
    if run.facts.get("decremented"):
        run.remember(decremented=False)


def _raised(run: Run, note: str) -> Done:
    in_group_again(run)
    return Done(note)


def _lowered(run: Run) -> bool:
    """Whether our last move of it took one off desired capacity: what rejoined in between has put it back already."""
    moves = sorted([*run.calls("EnterStandby"), *run.calls("ExitStandby")], key=lambda call: call.pk)
    return bool(moves) and bool(moves[-1].request.get("ShouldDecrementDesiredCapacity"))


def tasks(run: Run) -> Result:
    """Until every task has left, and for a drain until its pool's budget knows: with its last step its unit is given back,
    and the budget counts what the rounds have stored."""
    result = _left(run)
    if run.repair.action == "DRAIN" and isinstance(result, Done):
        run.renew()
        if run.instance.serving:
            return Wait(5, f"{result.note}; a round of collecting has still to see that it is out of service")
    return result


def _left(run: Run) -> Result:
    """Until every task has left; a dead host or a task that cannot be stopped by the policy's rule, with every proof."""
    look = run.look
    if look.container is None:
        return _unlisted(run)
    if again := set_active(run):
        return again
    if _empty(run):
        if look.connected is True:
            run.remember(emptied=run.instance.container_arn)
        return Done("every task has left")
    here = tasks_on(run.instance)
    if given_up(run, here):
        return Done("a named person gave the tasks that are left up")
    if look.tasks is None:
        if run.late("drain_timeout_s", 1800):
            return Ask("ECS does not say how many tasks run.", (_AGAIN, _UNDO))
        return Wait(5, "ECS does not say how many tasks run")
    for rule in (dead_host, unkillable):
        left = rule(run, here)
        if left is None:
            continue
        if left.proven and left.allowed:
            return Done(left.why)
        if left.proven:
            return Ask(left.why + " The policy asks a person.", (_choice(left.key, left.title), _UNDO))
        if left.allowed or run.late("drain_timeout_s", 1800):
            missing = "; ".join(left.missing)
            to_give_up(run, here)
            return Ask(
                f"{left.why} Not proven: {missing}.",
                (_choice("force_tasks", "Give these tasks up and go on", "terminate_first"), _AGAIN, _UNDO),
            )
    if look.tasks == 0:
        return _not_heard(run)
    if run.late("drain_timeout_s", 1800):
        names = ", ".join(sorted({t.get("group", "?") for t in here})[:5])
        to_give_up(run, here)
        return Ask(
            f"{words.count(look.tasks, 'task has', 'tasks have')} not left within the drain time-out: {names}.",
            (
                _choice("wait_longer", "Wait longer"),
                _choice("force_tasks", "Give these tasks up and go on", "terminate_first"),
                _UNDO,
            ),
        )
    return Wait(5, f"{words.count(look.tasks, 'task still has', 'tasks still have')} to leave")


def set_active(run: Run) -> Ask | None:
    """Somebody wants it to serve: a person says what is meant, before anything more is taken from it."""
    if run.look.ecs_status != "ACTIVE":
        return None
    choices = (_AGAIN,) if run.repair.irreversible else (_DRAIN_AGAIN, _UNDO)
    return Ask("Somebody set it back to ACTIVE while it was drained.", choices)


def still_empty(run: Run) -> Result | None:
    """Directly before a reboot or a stop: it is still drained and nothing runs there; None where it is so."""
    if again := set_active(run):
        return again
    if has_left(run):
        return None
    why = still_there(run)
    if run.late("drain_timeout_s", 1800):
        return Ask(f"It cannot be restarted: {why}.", (_choice("wait_longer", "Wait longer"), _DRAIN_AGAIN, _UNDO))
    return Wait(5, why)


def has_left(run: Run) -> bool:
    """Directly before the end or a restart: nothing runs there, or what does counts as gone or was given up."""
    return run.look.container is None or _empty(run) or given_up(run) or counted_as_gone(run)


def still_there(run: Run) -> str:
    """What stands against its end or restart, where `has_left` says no."""
    if run.look.tasks == 0:
        return "ECS counts no task, but its agent is away while EC2 shows it running: that proves nothing"
    return f"{'?' if run.look.tasks is None else run.look.tasks} tasks are on it again"


def _empty(run: Run) -> bool:
    """ECS counts no task, and its agent has told so. One that is away may have left this registration behind, and its
    machine, which EC2 shows running, may be at work under another."""
    told = run.look.connected is True or run.facts.get("emptied") == run.instance.container_arn
    return run.look.tasks == 0 and (told or run.look.state in ("stopped", "shutting-down", "terminated"))


def _not_heard(run: Run) -> Result:
    if run.in_step_for() < run.span("disconnect_s", 300):
        return Wait(5, "ECS counts no task, but its agent is away")
    to_give_up(run, [])
    return Ask(
        "ECS counts no task, but its agent is away while EC2 shows it running: it may be at work in another cluster. "
        "Look at the machine first.",
        (_AGAIN, _choice("force_tasks", "Give its tasks up and go on", "terminate_first"), _UNDO),
    )


def _unlisted(run: Run) -> Result:
    """ECS does not list it: no proof that its tasks have stopped, since a forced deregistration leaves them running."""
    if not run.instance.container_arn or run.facts.get("unregistered") or run.look.state in ("stopped", "terminated"):
        return Done("not registered with ECS")
    if "force_tasks" in run.repair.allowed and (run.facts.get("given_up") or {}).get("unlisted"):
        return Done("a named person gave its tasks up")
    if run.in_step_for() < run.span("disconnect_s", 300):
        return Wait(5, "ECS does not list it at the moment")
    run.remember(left_here={"unlisted": True})
    return Ask(
        "ECS lists it no longer: whether its tasks have stopped cannot be seen.",
        (_AGAIN, _choice("force_tasks", "Give its tasks up and go on", "terminate_first"), _UNDO),
    )


def _choice(key: str, title: str, needs: str = "decide") -> dict[str, str]:
    return {"key": key, "title": title, "needs": needs}


_AGAIN = _choice("again", "Try again")
_UNDO = _choice("undo", "Stop and undo")
_DRAIN_AGAIN = _choice("drain_again", "Drain it again")

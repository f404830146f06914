"""One probe for each assumption of docs/aws-assumptions.md, in the order in which they are tried on one ground."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from healthboard import config
from healthboard.probes.ground import Ground

REPLICA, DAEMON = "probe-replica", "probe-daemon"
STOP_S = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """`holds` None: it could not be tried, and `said` tells why."""

    holds: bool | None
    said: str


def same_token(ground: Ground) -> Answer:
    """A6: RunInstances twice with one token."""
    first, second = ground.launch(ground.name), ground.launch(ground.name)
    return Answer(first == second, f"the same token gave {first} and {second}")


def failures_in_200(ground: Ground) -> Answer:
    """A13: a container instance that is not there, in a cluster of our own."""
    try:
        answer = ground.change(
            "ecs", "UpdateContainerInstancesState", cluster=ground.name, containerInstances=["0" * 32],
            status="DRAINING",
        )  # fmt: skip
    except ClientError as refused:
        return Answer(False, f"it was refused: {refused.response['Error'].get('Code')}")
    reasons = [f.get("reason") for f in answer.get("failures", [])]
    return Answer(bool(reasons), f"HTTP 200 with failures {reasons}")


def stop_time_outs(ground: Ground) -> Answer:
    """A16: what a task definition tells of it, also once it is deregistered."""
    named = _define(ground)
    ground.change("ecs", "DeregisterTaskDefinition", taskDefinition=named)
    told = ground.ask("ecs", "DescribeTaskDefinition", taskDefinition=named)["taskDefinition"]
    each = [box.get("stopTimeout") for box in told["containerDefinitions"]]
    return Answer(each == [STOP_S], f"{told.get('status')}, stopTimeout {each}")


def draining(ground: Ground) -> Answer:
    """A7: service tasks move, a standalone task stays, a daemon's task stays as long, and it can be set back."""
    family = _define(ground)
    _service(ground, REPLICA, desiredCount=2, taskDefinition=family)
    _service(ground, DAEMON, schedulingStrategy="DAEMON", taskDefinition=family)
    started = ground.change("ecs", "RunTask", cluster=ground.name, taskDefinition=family, count=1)
    (alone,) = [t["taskArn"] for t in started["tasks"]]
    ground.wait("the tasks", lambda: _settled(ground, alone), 600)
    where = _tasks(ground)[alone]["containerInstanceArn"]
    _state(ground, where, "DRAINING")
    ground.wait("the service's tasks to leave", lambda: not _of(ground, REPLICA, where), 600)
    stays, daemon = _tasks(ground).get(alone, {}).get("lastStatus") == "RUNNING", bool(_of(ground, DAEMON, where))
    _state(ground, where, "ACTIVE")
    back = next(r["status"] for r in ground.registered().values() if r["containerInstanceArn"] == where)
    ground.change("ecs", "StopTask", cluster=ground.name, task=alone, reason="probe_aws")
    said = (
        f"service tasks left, standalone {'stays' if stays else 'was stopped'}, daemon {'stays' if daemon else 'left'}"
    )
    return Answer(stays and daemon and back == "ACTIVE", f"{said}, then {back} again")


def protected(ground: Ground) -> Answer:
    """A8: is a protected task left alone by a drain? Nothing rests on the answer."""
    tasks = [t for t in _tasks(ground).values() if t["group"] == f"service:{REPLICA}" and t["lastStatus"] == "RUNNING"]
    if not tasks:
        return Answer(None, "no task of a service runs")
    task = tasks[0]
    ground.change("ecs", "UpdateTaskProtection", cluster=ground.name, tasks=[task["taskArn"]], protectionEnabled=True)
    _state(ground, task["containerInstanceArn"], "DRAINING")
    gone = _passes(ground, lambda: _tasks(ground).get(task["taskArn"], {}).get("desiredStatus") != "RUNNING", 300)
    _state(ground, task["containerInstanceArn"], "ACTIVE")
    for service in (REPLICA, DAEMON):
        ground.change("ecs", "DeleteService", cluster=ground.name, service=service, force=True)
    return Answer(not gone, "the protected task was stopped" if gone else "the protected task was left for 5 minutes")


def standby(ground: Ground) -> Answer:
    """A1: EnterStandby without decrement."""
    old, before = ground.members()[0], set(ground.instances())
    _enter(ground, old, decrement=False)
    new = ground.wait("the group's launch", lambda: sorted(set(ground.instances()) - before), 300)[0]
    ground.wait("it to serve", lambda: ground.member(new) == "InService" and ground.serving(new), 900)
    return Answer(ground.member(old) == "Standby", f"{new} was launched; {old} is {ground.member(old) or 'no member'}")


def told_in_activities(ground: Ground) -> Answer:
    """A2: the launch of A1, as the activities tell it."""
    answer = ground.ask("autoscaling", "DescribeScalingActivities", AutoScalingGroupName=ground.name, MaxRecords=100)
    texts = [a["Description"] for a in answer["Activities"]]
    named = {t.rsplit(":", 1)[-1].strip() for t in texts if t.startswith("Launching a new EC2 instance: i-")}
    return Answer(set(ground.members()) <= named, f"activities name {', '.join(sorted(named)) or 'no launch'}")


def out_of_standby(ground: Ground) -> Answer:
    """A4: ExitStandby at the maximum, and below it."""
    old, desired = ground.members("Standby")[0], ground.group()["DesiredCapacity"]
    _resize(ground, MaxSize=desired)
    refused = ""
    try:
        _exit(ground, old)
    except ClientError as error:
        refused = error.response["Error"].get("Code", "refused")
    _resize(ground, MaxSize=6)
    if refused:
        _exit(ground, old)
    ground.wait("it to be in service", lambda: ground.member(old) == "InService", 300)
    now = ground.group()["DesiredCapacity"]
    said = f"at the maximum: {refused or 'accepted'}; desired {desired} became {now}"
    return Answer(bool(refused) and now == desired + 1, said)


def by_name(ground: Ground) -> Answer:
    """A5: TerminateInstanceInAutoScalingGroup with decrement."""
    *others, victim = ground.members()
    before = ground.group()["DesiredCapacity"]
    ground.change(
        "autoscaling", "TerminateInstanceInAutoScalingGroup", InstanceId=victim, ShouldDecrementDesiredCapacity=True
    )
    ground.wait("it to leave", lambda: not ground.member(victim), 600)
    kept = set(others) <= set(ground.members()) and ground.group()["DesiredCapacity"] == before - 1
    return Answer(kept, f"{victim} left, {len(others)} others {'stayed' if kept else 'did not all stay'}")


def detached(ground: Ground) -> Answer:
    """A3: DetachInstances from Standby without decrement. The group launches for the Standby, and not again."""
    old, before = ground.members()[0], set(ground.instances())
    desired = ground.group()["DesiredCapacity"]
    _enter(ground, old, decrement=False)
    ground.wait("the group's launch", lambda: len(ground.members()) == desired, 600)
    names = {"AutoScalingGroupName": ground.name, "InstanceIds": [old]}
    ground.change("autoscaling", "DetachInstances", ShouldDecrementDesiredCapacity=False, **names)
    ground.wait("it to leave", lambda: not ground.member(old), 300)
    _passes(ground, lambda: len(set(ground.instances()) - before) > 1, 120)
    launched, now = len(set(ground.instances()) - before), ground.group()["DesiredCapacity"]
    ground.change("ec2", "TerminateInstances", InstanceIds=[old])
    return Answer(now == desired and launched == 1, f"desired stays {now}; {launched} launched")


def stopped_members(ground: Ground) -> Answer:
    """A9: a stopped member in service is replaced, one in Standby is left alone."""
    aside, serving = ground.members()[:2]
    _enter(ground, aside, decrement=True)
    ground.change("ec2", "StopInstances", InstanceIds=[aside, serving])
    ground.wait("the one in service to be ended", lambda: not ground.member(serving), 900)
    left = ground.member(aside) == "Standby" and ground.instances().get(aside) in ("stopping", "stopped")
    state = f"{ground.member(aside) or 'no member'}, {ground.instances().get(aside)}"
    return Answer(left, f"{serving} was replaced; {aside} in Standby is {state}")


def stopped_stays_registered(ground: Ground) -> Answer:
    """A12: on the stopped one of A9."""
    stopped = _stopped(ground)
    if not stopped:
        return Answer(None, "nothing is stopped")
    ground.wait("the agent to be away", lambda: not ground.registered().get(stopped, {}).get("agentConnected"), 300)
    row = ground.registered().get(stopped, {})
    return Answer(row.get("status") == "ACTIVE", f"{stopped} is {row.get('status', 'not registered')}, its agent away")


def ended_stays_registered(ground: Ground) -> Answer:
    """A10: on the stopped one of A9, whose agent is away."""
    stopped = _stopped(ground)
    if not stopped:
        return Answer(None, "nothing is stopped")
    ground.change("ec2", "TerminateInstances", InstanceIds=[stopped])
    ground.wait("its end", lambda: ground.instances().get(stopped, "terminated") == "terminated", 600)
    _passes(ground, lambda: stopped not in ground.registered(), 120)
    row = ground.registered().get(stopped)
    if row is None:
        return Answer(False, f"{stopped} is registered no longer")
    arn = row["containerInstanceArn"]
    ground.change("ecs", "DeregisterContainerInstance", cluster=ground.name, containerInstance=arn, force=True)
    gone = ground.wait("it to go", lambda: stopped not in ground.registered(), 120)
    return Answer(gone, f"{stopped} stayed registered until it was deregistered")


def forged_events(ground: Ground) -> Answer:
    """A14: an event of an `aws.` source, put by us on the default bus."""
    if config.mode() == "sandbox":
        return Answer(None, "the sandbox has no EventBridge")
    entry = {"Source": "aws.healthboard-probe", "DetailType": "probe", "Detail": "{}", "Resources": [ground.name]}
    told = ground.client("events", changing=True).put_events(Entries=[entry])["Entries"][0]
    return Answer("EventId" not in told, f"answered {told.get('ErrorCode', 'accepted')}")


def reboots(ground: Ground) -> Answer:
    """A11."""
    return Answer(None, "a boot id is told by the node reporter alone, which a machine without a GPU does not run")


def block_warnings(ground: Ground) -> Answer:
    """A15."""
    return Answer(None, "only a Capacity Block that was paid for and ends warns")


def spot_requests(ground: Ground) -> Answer:
    """A17."""
    return Answer(None, "only a Spot instance has a request, and one that persists would outlive the probe")


def registered_anew(ground: Ground) -> Answer:
    """A18."""
    return Answer(None, "only from inside the instance can its agent be made to lose its state")


#: assumption -> its probe, in the order in which they are tried: each leaves the ground fit for the next
PROBES: dict[str, Callable[[Ground], Answer]] = {
    "A6": same_token, "A13": failures_in_200, "A16": stop_time_outs, "A7": draining, "A8": protected, "A1": standby, "A2": told_in_activities,
    "A4": out_of_standby, "A5": by_name, "A3": detached, "A9": stopped_members, "A12": stopped_stays_registered,
    "A10": ended_stays_registered, "A11": reboots, "A14": forged_events, "A15": block_warnings,
    "A17": spot_requests, "A18": registered_anew,
}  # fmt: skip

#: what the engine does not rest on, whichever way it is
ONLY_TOLD = {"A8"}
#: what only another one prepares
NEEDS = {"A2": "A1", "A4": "A1", "A8": "A7", "A10": "A9", "A12": "A9"}


def chosen(only: list[str]) -> list[str]:
    """The named ones and what prepares them, in order; all where none is named."""
    wanted = {*only, *(NEEDS[name] for name in only if name in NEEDS)} if only else set(PROBES)
    return [name for name in PROBES if name in wanted]


# --- within


def _define(ground: Ground) -> str:
    box = {
        "name": "probe", "image": "public.ecr.aws/docker/library/busybox:stable", "command": ["sleep", "7200"],
        "memory": 32, "cpu": 16, "essential": True, "stopTimeout": STOP_S,
    }  # fmt: skip
    made = ground.change(
        "ecs", "RegisterTaskDefinition", family=ground.name, containerDefinitions=[box],
        requiresCompatibilities=["EC2"],
    )["taskDefinition"]  # fmt: skip
    return f"{made['family']}:{made['revision']}"


def _service(ground: Ground, name: str, **more: Any) -> None:
    ground.change("ecs", "CreateService", cluster=ground.name, serviceName=name, launchType="EC2", **more)


def _tasks(ground: Ground) -> dict[str, dict[str, Any]]:
    arns = ground.ask("ecs", "ListTasks", cluster=ground.name)["taskArns"]
    found = ground.ask("ecs", "DescribeTasks", cluster=ground.name, tasks=arns)["tasks"] if arns else []
    return {t["taskArn"]: t for t in found}


def _of(ground: Ground, service: str, where: str) -> list[str]:
    rows = _tasks(ground).values()
    return [t["taskArn"] for t in rows if t["group"] == f"service:{service}" and t.get("containerInstanceArn") == where]


def _settled(ground: Ground, alone: str) -> bool:
    rows = _tasks(ground)
    running = [t["group"] for t in rows.values() if t["lastStatus"] == "RUNNING"]
    daemons = len([r for r in ground.registered().values() if r["status"] == "ACTIVE" and r["agentConnected"]])
    return alone in rows and rows[alone]["lastStatus"] == "RUNNING" and running.count(f"service:{REPLICA}") == 2 and (
        running.count(f"service:{DAEMON}") == daemons
    )  # fmt: skip


def _state(ground: Ground, where: str, status: str) -> None:
    ground.change(
        "ecs", "UpdateContainerInstancesState", cluster=ground.name, containerInstances=[where], status=status
    )


def _enter(ground: Ground, one: str, *, decrement: bool) -> None:
    names = {"AutoScalingGroupName": ground.name, "InstanceIds": [one]}
    ground.change("autoscaling", "EnterStandby", ShouldDecrementDesiredCapacity=decrement, **names)
    ground.wait("Standby", lambda: ground.member(one) == "Standby", 300)


def _exit(ground: Ground, one: str) -> None:
    ground.change("autoscaling", "ExitStandby", AutoScalingGroupName=ground.name, InstanceIds=[one])


def _resize(ground: Ground, **sizes: int) -> None:
    ground.change("autoscaling", "UpdateAutoScalingGroup", AutoScalingGroupName=ground.name, **sizes)


def _stopped(ground: Ground) -> str:
    found = sorted(one for one, state in ground.instances().items() if state in ("stopping", "stopped"))
    return next((one for one in found if ground.member(one) == "Standby"), "")


def _passes(ground: Ground, happens: Callable[[], Any], seconds: float) -> bool:
    """Whether it happens within so long: that it does not is an answer as well."""
    left = seconds / ground.speed
    while left > 0:
        if happens():
            return True
        ground.sleep(10 / ground.speed)
        left -= 10 / ground.speed
    return bool(happens())

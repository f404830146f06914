"""A fresh look at one instance in AWS: read before every step, never taken from the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from healthboard.aws import client
from healthboard.fleet.models import Instance

PAUSE_TAG = "healthboard:pause"
NOT_FOUND = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")


class AwsTrouble(Exception):
    """AWS did not answer, refused for load, or answered something unusable: nothing is known, so wait."""


@dataclass(frozen=True, slots=True)
class Look:
    state: str  # EC2 state; "" where EC2 does not know it
    ec2: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    container: dict[str, Any] | None = None  # None: not registered any more
    lifecycle: str = ""  # in its Auto Scaling group
    group: dict[str, Any] | None = None
    paused_by: str = ""  # where a pause tag was found

    @property
    def ecs_status(self) -> str:
        return (self.container or {}).get("status", "")

    @property
    def connected(self) -> bool | None:
        return (self.container or {}).get("agentConnected")

    @property
    def tasks(self) -> int | None:
        """Running and pending tasks; None where ECS does not say."""
        if self.container is None:
            return None
        running, pending = self.container.get("runningTasksCount"), self.container.get("pendingTasksCount")
        return None if running is None or pending is None else running + pending

    @property
    def gone(self) -> bool:
        return self.state in ("shutting-down", "terminated")


def ask_aws(call, **request: Any) -> dict[str, Any]:
    """Make one reading call; whatever is not a clear answer becomes `AwsTrouble`."""
    try:
        return call(**request)
    except ClientError as error:
        raise AwsTrouble(f"{error.operation_name}: {error.response['Error'].get('Code', 'error')}") from error
    except BotoCoreError as error:
        raise AwsTrouble(str(error)) from error


def ask_about(call, **request: Any) -> dict[str, Any] | None:
    """As `ask_aws`; None where AWS says clearly that what was asked about does not exist."""
    try:
        return ask_aws(call, **request)
    except AwsTrouble as trouble:
        cause = trouble.__cause__
        if isinstance(cause, ClientError) and "NotFound" in cause.response["Error"].get("Code", ""):
            return None
        raise


def look_at(instance: Instance) -> Look:
    """Raises AwsTrouble where AWS does not answer, or leaves out what an answer must hold."""
    try:
        return _look_at(instance)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise AwsTrouble(f"an answer lacks what it must hold: {type(error).__name__} {error}") from error


def _look_at(instance: Instance) -> Look:
    place = {"account": instance.account.account_id, "region": instance.region, "part": "actor"}
    ec2, ecs, scaling = (client(s, **place) for s in ("ec2", "ecs", "autoscaling"))
    try:
        answer = ec2.describe_instances(InstanceIds=[instance.instance_id])
        found = [i for r in answer["Reservations"] for i in r["Instances"]]
        if not found or not found[0].get("State", {}).get("Name"):
            raise AwsTrouble("DescribeInstances tells neither the instance nor that there is none")
    except ClientError as error:
        if error.response["Error"].get("Code") not in NOT_FOUND:
            raise AwsTrouble(f"DescribeInstances: {error.response['Error'].get('Code')}") from error
        found = []
    except BotoCoreError as error:
        raise AwsTrouble(str(error)) from error
    item = found[0] if found else {}
    tags = {t["Key"]: t.get("Value", "") for t in item.get("Tags", [])}
    paused = "instance" if PAUSE_TAG in tags else ""

    container = None
    if instance.cluster and instance.container_arn:
        answer = ask_aws(
            ecs.describe_container_instances,
            cluster=instance.cluster.name,
            containerInstances=[instance.container_arn],
            include=["TAGS", "CONTAINER_INSTANCE_HEALTH"],
        )
        container = next(iter(answer.get("containerInstances", [])), None)
        if container is None and not any(f.get("reason") == "MISSING" for f in answer.get("failures", [])):
            raise AwsTrouble("DescribeContainerInstances answered neither the instance nor a failure")
        clusters = ask_aws(ecs.describe_clusters, clusters=[instance.cluster.name], include=["TAGS"])["clusters"]
        if any(t.get("key") == PAUSE_TAG for t in (container or {}).get("tags", [])):
            paused = paused or "container instance"
        if any(t.get("key") == PAUSE_TAG for c in clusters for t in c.get("tags", [])):
            paused = paused or "cluster"

    lifecycle, group = "", None
    name = tags.get("aws:autoscaling:groupName") or instance.group_name
    if name:
        members = ask_aws(scaling.describe_auto_scaling_instances, InstanceIds=[instance.instance_id])
        lifecycle = next((m["LifecycleState"] for m in members["AutoScalingInstances"]), "")
        if lifecycle.startswith("Warmed"):
            lifecycle = ""  # put back into the group's warm pool: the group no longer counts it among its members
        groups = ask_aws(scaling.describe_auto_scaling_groups, AutoScalingGroupNames=[name])["AutoScalingGroups"]
        group = groups[0] if groups else None
        _membership_told(instance.instance_id, lifecycle, group, named=bool(tags.get("aws:autoscaling:groupName")),
                         there=item.get("State", {}).get("Name") in ("pending", "running"))  # fmt: skip
        if group and any(t.get("Key") == PAUSE_TAG for t in group.get("Tags", [])):
            paused = paused or "group"
    return Look(
        state=item.get("State", {}).get("Name", ""), ec2=item, tags=tags, container=container, lifecycle=lifecycle,
        group=group, paused_by=paused,
    )  # fmt: skip


def _membership_told(id_: str, lifecycle: str, group: dict[str, Any] | None, *, named: bool, there: bool) -> None:
    """An empty list is no answer: what the instance's tag, its own row and its group's list say must agree."""
    if group is None:
        if named and there:
            raise AwsTrouble("DescribeAutoScalingGroups does not tell the group that the instance's tag names")
        return
    listed = any(m["InstanceId"] == id_ for m in group["Instances"])
    if listed != bool(lifecycle):
        raise AwsTrouble("Auto Scaling does not say clearly whether it is a member")


def tasks_on(instance: Instance) -> list[dict[str, Any]]:
    """Every task on the instance that has not stopped, as DescribeTasks tells it."""
    ecs = client("ecs", account=instance.account.account_id, region=instance.region, part="actor")
    found: list[dict[str, Any]] = []
    for desired in ("RUNNING", "STOPPED"):
        token = None
        while True:
            page = ask_aws(
                ecs.list_tasks, cluster=instance.cluster.name, containerInstance=instance.container_arn,
                desiredStatus=desired, **({"nextToken": token} if token else {}),
            )  # fmt: skip
            if page["taskArns"]:
                answer = ask_aws(
                    ecs.describe_tasks, cluster=instance.cluster.name, tasks=page["taskArns"], include=["TAGS"]
                )
                found += [t for t in answer["tasks"] if t.get("lastStatus") != "STOPPED"]
            token = page.get("nextToken")
            if not token:
                break
    return found

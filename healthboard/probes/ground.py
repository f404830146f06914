"""The throw-away ground that assumptions are tried on: a cluster, a launch template and a group of its own.

Everything has one name (`healthboard-probe-…`) and the tag `healthboard:probe`; the tag `healthboard:pause` keeps
healthboard itself away. `change` is the only way to a changing call, and refuses whatever was not made here. A note in
`folder` is written before anything is made and removed when all is gone, so that what an abrupt end leaves is found again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from healthboard import aws, operations

TAG, PAUSE = "healthboard:probe", "healthboard:pause"
PREFIX = "healthboard-probe-"
TYPE = "t3.micro"
IMAGE = "resolve:ssm:/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id"
#: never waited for shorter than this, whatever the sandbox's speed: some of its times are not sped up
LEAST_S, POLL_S = 90.0, 10.0
_PASSING = ("Throttl", "RequestLimit")


class NotOurs(Exception):
    """A changing call named something that this ground did not make. Nothing was sent."""


class TookTooLong(Exception):
    """What was waited for did not come in time."""


class Ground:
    """`speed` divides every wait; `sleep` is how time passes; `zone`/`subnet`: where; `say` takes lines for a person."""

    def __init__(
        self, *, account: str, region: str, folder: Path, run: str = "", speed: float = 1.0, zone: str = "",
        subnet: str = "", profile: str = "ecsInstanceRole", sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.account, self.region, self.folder = account, region, folder
        self.run = run or secrets.token_hex(4)
        self.name = PREFIX + self.run
        self.speed, self.sleep, self.say = speed, sleep, say
        self.zone, self.subnet, self.profile = zone or f"{region}a", subnet, profile
        self.template = ""
        self.log: list[dict[str, Any]] = []  # every changing call since the last `taken`

    @property
    def note(self) -> Path:
        return self.folder / f"{self.name}.json"

    # --- calls

    def client(self, service: str, *, changing: bool = False) -> Any:
        return aws.client(
            service, account=self.account, region=self.region, changing=changing, allowed=operations.PROBE
        )

    def ask(self, service: str, operation: str, /, **request: Any) -> dict[str, Any]:
        return getattr(self.client(service), xform_name(operation))(**request)

    def change(self, service: str, operation: str, /, **request: Any) -> dict[str, Any]:
        """One changing call on what is ours. Raises NotOurs before anything is sent; ClientError as AWS refuses."""
        self._only_ours(operation, request)
        entry: dict[str, Any] = {"service": service, "operation": operation, "request": request}
        self.log.append(entry)
        for last in (False, False, True):
            try:
                answer = getattr(self.client(service, changing=True), xform_name(operation))(**request)
            except ClientError as error:
                code = error.response["Error"].get("Code", "")
                entry["error"] = {"code": code, "message": error.response["Error"].get("Message", "")}
                if last or not code.startswith(_PASSING):
                    raise
                self.sleep(POLL_S / self.speed)
                continue
            entry.pop("error", None)
            entry["answer"] = {k: v for k, v in answer.items() if k != "ResponseMetadata"}
            return answer
        raise AssertionError("unreachable")

    def date(self) -> str:
        """AWS's own time, as its answers carry it: neither the database's nor this host's."""
        return self.ask("sts", "GetCallerIdentity")["ResponseMetadata"]["HTTPHeaders"].get("date", "")

    def taken(self) -> list[dict[str, Any]]:
        done, self.log = self.log, []
        return done

    def _only_ours(self, operation: str, request: dict[str, Any]) -> None:
        named = {
            request[key] for key in ("AutoScalingGroupName", "cluster", "clusterName", "LaunchTemplateName", "family")
            if key in request
        }  # fmt: skip
        named |= {str(request["taskDefinition"]).partition(":")[0]} if "taskDefinition" in request else set()
        template = (request.get("LaunchTemplate") or {}).get("LaunchTemplateId", request.get("LaunchTemplateId"))
        if named - {self.name} or (template and template != self.template):
            raise NotOurs(f"{operation}: {', '.join(sorted(map(str, named)))} {template or ''} was not made here")
        ids = [*request.get("InstanceIds", ()), *([request["InstanceId"]] if "InstanceId" in request else ())]
        for one in ids:
            if self.tags_of(one).get(TAG) != self.run:
                raise NotOurs(f"{operation}: {one} was not made here")
        if not (named or template or ids):
            raise NotOurs(f"{operation} names nothing that was made here")

    # --- reading

    def tags_of(self, instance_id: str) -> dict[str, str]:
        return {t["Key"]: t["Value"] for t in self.instance(instance_id).get("Tags", [])}

    def instance(self, instance_id: str) -> dict[str, Any]:
        found = self.ask("ec2", "DescribeInstances", Filters=[{"Name": "instance-id", "Values": [instance_id]}])
        return next((i for r in found["Reservations"] for i in r["Instances"]), {})

    def instances(self) -> dict[str, str]:
        """Id and state of every instance of this run."""
        found = self.ask("ec2", "DescribeInstances", Filters=[{"Name": f"tag:{TAG}", "Values": [self.run]}])
        return {i["InstanceId"]: i["State"]["Name"] for r in found["Reservations"] for i in r["Instances"]}

    def group(self) -> dict[str, Any]:
        found = self.ask("autoscaling", "DescribeAutoScalingGroups", AutoScalingGroupNames=[self.name])
        return next(iter(found["AutoScalingGroups"]), {})

    def members(self, state: str = "InService") -> list[str]:
        rows = self.group().get("Instances", [])
        return sorted(i["InstanceId"] for i in rows if i["LifecycleState"] == state)

    def member(self, instance_id: str) -> str:
        """Its lifecycle state; empty: no member."""
        rows = self.group().get("Instances", [])
        return next((i["LifecycleState"] for i in rows if i["InstanceId"] == instance_id), "")

    def registered(self) -> dict[str, dict[str, Any]]:
        """Instance id -> its container instance, whatever its status."""
        arns = self.ask("ecs", "ListContainerInstances", cluster=self.name)["containerInstanceArns"]
        arns += self.ask("ecs", "ListContainerInstances", cluster=self.name, status="DRAINING")["containerInstanceArns"]
        if not arns:
            return {}
        request = {"cluster": self.name, "containerInstances": sorted(set(arns))}
        rows = self.ask("ecs", "DescribeContainerInstances", **request)["containerInstances"]
        return {row["ec2InstanceId"]: row for row in rows}

    def serving(self, instance_id: str) -> bool:
        row = self.registered().get(instance_id, {})
        return row.get("status") == "ACTIVE" and row.get("agentConnected") is True

    # --- time

    def wait(self, what: str, happened: Callable[[], Any], seconds: float = 600) -> Any:
        """Until it happened, asked every ten seconds. Raises TookTooLong."""
        self.say(f"  waiting for {what}")
        left = max(seconds / self.speed, LEAST_S)
        while not (found := happened()):
            if left <= 0:
                raise TookTooLong(f"{what}: not within {seconds:.0f} s")
            self.sleep(POLL_S / self.speed)
            left -= POLL_S / self.speed
        return found

    # --- making and cleaning

    def make(self) -> None:
        """Two members in service and registered. Leaves a note first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.note.write_text(json.dumps({"account": self.account, "region": self.region, "run": self.run}))
        self.say(f"making {self.name} in {self.account} {self.region}")
        tags = [{"key": key, "value": value} for key, value in self._tags().items()]
        self.change("ecs", "CreateCluster", clusterName=self.name, tags=tags)
        made = self.change(
            "ec2", "CreateLaunchTemplate", LaunchTemplateName=self.name, LaunchTemplateData=self._data(),
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": self._pairs()}],
        )  # fmt: skip
        self.template = made["LaunchTemplate"]["LaunchTemplateId"]
        place = {"VPCZoneIdentifier": self.subnet} if self.subnet else {"AvailabilityZones": [self.zone]}
        self.change(
            "autoscaling", "CreateAutoScalingGroup", AutoScalingGroupName=self.name, MinSize=0, MaxSize=6,
            DesiredCapacity=2, LaunchTemplate={"LaunchTemplateId": self.template, "Version": "1"},
            Tags=[{**pair, "PropagateAtLaunch": True} for pair in self._pairs()], **place,
        )  # fmt: skip
        self.wait("two members", lambda: len(self.members()) == 2 and all(map(self.serving, self.members())), 900)
        self.taken()

    def launch(self, token: str) -> str:
        request: dict[str, Any] = {"SubnetId": self.subnet} if self.subnet else {}
        if not self.subnet:
            request["Placement"] = {"AvailabilityZone": self.zone}
        template = {"LaunchTemplateId": self.template, "Version": "1"}
        made = self.change(
            "ec2", "RunInstances", MinCount=1, MaxCount=1, ClientToken=token, LaunchTemplate=template, **request
        )
        return made["Instances"][0]["InstanceId"]

    def _tags(self) -> dict[str, str]:
        return {TAG: self.run, PAUSE: "thrown away by probe_aws", "Name": self.name}

    def _pairs(self) -> list[dict[str, str]]:
        return [{"Key": key, "Value": value} for key, value in self._tags().items()]

    def _data(self) -> dict[str, Any]:
        import base64

        script = f"#!/bin/bash\necho ECS_CLUSTER={self.name} >> /etc/ecs/ecs.config\n"
        return {
            "ImageId": IMAGE, "InstanceType": TYPE, "IamInstanceProfile": {"Name": self.profile},
            "UserData": base64.b64encode(script.encode()).decode(),
            "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
            "TagSpecifications": [{"ResourceType": "instance", "Tags": self._pairs()}],
        }  # fmt: skip

    def clean(self) -> list[str]:
        """End and delete all of it, whatever is there; returns what could not be. Harmless when doubled."""
        self.say(f"cleaning up {self.name}")
        wrong: list[str] = []
        for step in (self._services, self._group, self._instances, self._cluster, self._template, self._definitions):
            try:
                step()
            except Exception as error:  # whatever ails one step, the others are taken
                if not _absent(error):
                    wrong.append(f"{type(error).__name__}: {error}")
        if not wrong:
            self.note.unlink(missing_ok=True)
        return wrong

    def _services(self) -> None:
        for arn in self.ask("ecs", "ListServices", cluster=self.name)["serviceArns"]:
            self.change("ecs", "DeleteService", cluster=self.name, service=arn.rpartition("/")[2], force=True)
        for arn in self.ask("ecs", "ListTasks", cluster=self.name)["taskArns"]:
            self.change("ecs", "StopTask", cluster=self.name, task=arn, reason="probe_aws is over")

    def _group(self) -> None:
        if self.group():
            self.change("autoscaling", "DeleteAutoScalingGroup", AutoScalingGroupName=self.name, ForceDelete=True)

    def _instances(self) -> None:
        for one, state in self.instances().items():
            if state not in ("terminated", "shutting-down"):
                self.change("ec2", "TerminateInstances", InstanceIds=[one])
        over = {"terminated"}
        self.wait("all instances to end", lambda: set(self.instances().values()) <= over, 900)

    def _cluster(self) -> None:
        self.wait("the cluster to be empty", self._deleted, 300)

    def _deleted(self) -> bool:
        for row in self.registered().values():
            arn = row["containerInstanceArn"]
            self.change("ecs", "DeregisterContainerInstance", cluster=self.name, containerInstance=arn, force=True)
        try:
            self.change("ecs", "DeleteCluster", cluster=self.name)
        except ClientError as error:
            if "Contains" not in error.response["Error"].get("Code", ""):
                raise
            return False
        return True

    def _template(self) -> None:
        self.change("ec2", "DeleteLaunchTemplate", LaunchTemplateName=self.name)

    def _definitions(self) -> None:
        for arn in self.ask("ecs", "ListTaskDefinitions", familyPrefix=self.name)["taskDefinitionArns"]:
            self.change("ecs", "DeregisterTaskDefinition", taskDefinition=arn.rpartition("/")[2])


def _absent(error: Exception) -> bool:
    said = error.response["Error"] if isinstance(error, ClientError) else {}
    return "NotFound" in said.get("Code", "") or "not found" in said.get("Message", "").lower()


def left_over(folder: Path, account: str, region: str) -> list[str]:
    """Runs whose note is still there: they came to an abrupt end."""
    found = []
    for path in sorted(folder.glob(f"{PREFIX}*.json")):
        try:
            told = json.loads(path.read_text())
            if (told["account"], told["region"]) == (account, region) and path.stem == PREFIX + told["run"]:
                found.append(told["run"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found

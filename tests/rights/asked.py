"""What IAM is asked for one call: actions, resources and condition keys, by the service authorization reference."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.interfere import Call
from healthboard.sandbox.world import World
from tests.rights.iam import Request

#: operations whose action has another name
NAMED = {("sqs", "DeleteMessageBatch"): "sqs:DeleteMessage"}
#: what one operation asks for besides its own action
ALSO = {("ec2", "RunInstances"): {"ec2:CreateTags", "iam:PassRole"}}
ON_INSTANCES = {"TerminateInstances", "RebootInstances", "StopInstances", "StartInstances", "GetConsoleOutput"}
ON_GROUPS = {"EnterStandby", "ExitStandby", "DetachInstances", "SetDesiredCapacity"}


def action(service: str, operation: str) -> str:
    return NAMED.get((service, operation), f"{service}:{operation}")


def _tags(kind: str, tags: dict[str, str]) -> dict[str, str]:
    return {f"aws:{kind}Tag/{key}": value for key, value in tags.items()}


def requests(world: World, call: Call) -> list[Request]:
    """Everything that must be allowed for this call."""
    what, p = action(call.service, call.operation), call.params
    at = f"{call.region}:{call.account}"
    if call.operation in ON_INSTANCES:
        ids = p.get("InstanceIds") or [p["InstanceId"]]
        return [instance(what, at, one, world.instances[one].tags) for one in ids if one in world.instances]
    if call.operation in ON_GROUPS:
        return [group(what, at, p["AutoScalingGroupName"], world.groups[p["AutoScalingGroupName"]].tags)]
    if call.operation == "TerminateInstanceInAutoScalingGroup":
        of = next(g for g in world.groups.values() if p["InstanceId"] in g.members)
        return [group(what, at, of.id, of.tags)]
    if call.operation == "UpdateContainerInstancesState":
        found = [world.containers[arn.rpartition("/")[2]] for arn in p["containerInstances"]]
        # ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM=ec2_instance, as docs/aws/README.md asks for
        return [container(what, at, c.cluster, c.id, {**world.instances[c.instance].tags, **c.tags}) for c in found]
    if call.operation == "DeregisterContainerInstance":
        name = p["cluster"].rpartition("/")[2]
        return [Request(what, f"arn:aws:ecs:{at}:cluster/{name}", _tags("Resource", world.clusters[name].tags))]
    if call.operation == "RunInstances":
        return launch(at, p, world)
    if call.service == "sqs":
        return [Request(what, f"arn:aws:sqs:{at}:healthboard-events")]
    return [Request(what)]


def instance(what: str, at: str, id_: str, tags: dict[str, str]) -> Request:
    return Request(what, f"arn:aws:ec2:{at}:instance/{id_}", _tags("Resource", tags))


def container(what: str, at: str, cluster: str, id_: str, tags: dict[str, str]) -> Request:
    return Request(what, f"arn:aws:ecs:{at}:container-instance/{cluster}/{id_}", _tags("Resource", tags))


def group(what: str, at: str, name: str, tags: dict[str, str]) -> Request:
    return Request(
        what, f"arn:aws:autoscaling:{at}:autoScalingGroup:0d2e:autoScalingGroupName/{name}", _tags("Resource", tags)
    )


def launch(at: str, p: dict[str, Any], world: World) -> list[Request]:
    """RunInstances is asked for each thing that it touches, with the tags that it gives and the role that it passes."""
    given = {t["Key"]: t["Value"] for spec in p.get("TagSpecifications", []) for t in spec["Tags"]}
    template = world.templates.get((p.get("LaunchTemplate") or {}).get("LaunchTemplateId", ""))
    data = template.versions[p["LaunchTemplate"]["Version"]] if template else {}
    arn = f"arn:aws:ec2:{at}:launch-template/{template.id}" if template else ""
    account = at.partition(":")[2]

    def one(kind: str, name: str, where: str = at, **more: str) -> Request:
        own = "true" if template and name in str(data) else "false"  # named by the template, not by the request
        known = {"ec2:LaunchTemplate": arn, "ec2:IsLaunchTemplateResource": own} if template else {}
        return Request("ec2:RunInstances", f"arn:aws:ec2:{where}:{kind}/{name}", {**known, **more})

    asked = [
        one("image", p.get("ImageId") or data.get("ImageId", ""), f"{at.partition(':')[0]}:"),
        one("subnet", p.get("SubnetId", "subnet-of-the-default-vpc")),
        one("security-group", data.get("SecurityGroupIds", ["sg-default"])[0]),
        *(one(kind, "*") for kind in ("network-interface", "volume")),
        *([one("key-pair", data["KeyName"])] if data.get("KeyName") else []),
        one("instance", "*", **_tags("Request", given)),
    ]
    if template:
        asked.append(Request("ec2:RunInstances", arn, _tags("Resource", template.tags)))
    if given:
        asked.append(Request("ec2:CreateTags", f"arn:aws:ec2:{at}:instance/*", {"ec2:CreateAction": "RunInstances"}))
    profile = data.get("IamInstanceProfile") or p.get("IamInstanceProfile")
    if profile:
        role = (profile.get("Arn") or profile["Name"]).rpartition("/")[2]
        service = {"iam:PassedToService": "ec2.amazonaws.com"}
        asked.append(Request("iam:PassRole", f"arn:aws:iam::{account}:role/{role}", service))
    return asked

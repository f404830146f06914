"""Who replaces an instance, told from what AWS says about it. Pure; where the evidence disagrees, the careful answer.

The more careful owner is the one that we may do less to: UNKNOWN, OTHER, BATCH, ECS, PLAIN, GROUP, TEMPLATE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

GROUP_TAG = "aws:autoscaling:groupName"
TEMPLATE_TAG = "aws:ec2launchtemplate:id"
STACK_TAG = "aws:cloudformation:stack-name"

#: most careful first
CAREFUL = ("UNKNOWN", "OTHER", "BATCH", "ECS", "PLAIN", "GROUP", "TEMPLATE")

#: tags that another controller puts on what it looks after: (pattern of the key, its name)
CONTROLLERS = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"kubernetes\.io/cluster/|eks:|aws:eks:", "Kubernetes"),
        (r"karpenter\.(sh|k8s\.aws)/", "Karpenter"),
        (r"aws:elasticmapreduce:", "Amazon EMR"),
        (r"parallelcluster:|aws-parallelcluster-", "AWS ParallelCluster"),
        (r"sagemaker:|aws:sagemaker:", "Amazon SageMaker"),
        (r"elasticbeanstalk:", "Elastic Beanstalk"),
        (r"aws:ec2spot:fleet-request-id", "a Spot Fleet"),
        (r"spotinst:|spot\.io/", "Spot by Flexera"),
        (r"ray-cluster-name|ray-node-", "Ray"),
        (r"skypilot-|skypilot:", "SkyPilot"),
    )
)
FLEET_TAG = "aws:ec2:fleet-id"  # groups launch through a fleet too: it speaks only for an instance without a group
BATCH_TAG = re.compile(r"AWSBatchServiceTag|aws:batch:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read; None is "could not be read", empty is "read, and there is none".

    `group` is what Auto Scaling says of the instance's membership, `group_tag` what its own tag says.
    `provider_kind`: GROUP, MANAGED, or empty for an instance without a capacity provider.
    """

    tags: Mapping[str, str] | None = None
    operator: str | None = None  # principal that EC2 names as operator, or empty
    cluster: str | None = None
    cluster_batch: bool | None = None
    provider: str | None = None
    provider_kind: str | None = None
    provider_group: str = ""
    group: str | None = None
    group_tags: Mapping[str, str] | None = None


def owner_of(facts: Facts) -> tuple[str, list[str]]:
    """(owner, evidence in sentences). Anything that could not be read gives UNKNOWN."""
    unread = _unread(facts)
    claims = [*unread, *_others(facts), *_batch(facts), *_ecs(facts), *_group(facts)]
    if not claims:
        claims = _alone(facts)
    owner = min((owner for owner, _ in claims), key=CAREFUL.index)
    return owner, [sentence for _, sentence in sorted(claims, key=lambda claim: CAREFUL.index(claim[0]))]


Claims = list[tuple[str, str]]


def _unread(facts: Facts) -> Claims:
    parts = {
        "its tags": facts.tags,
        "who operates it": facts.operator,
        "its Auto Scaling group": facts.group,
        "its capacity provider": facts.provider_kind,
    }
    found: Claims = [("UNKNOWN", f"{what} could not be read") for what, value in parts.items() if value is None]
    if not facts.cluster:
        found.append(("UNKNOWN", "it is registered in no cluster that we see"))
    elif facts.cluster_batch is None:
        found.append(("UNKNOWN", f"what cluster {facts.cluster} is for could not be read"))
    if facts.group and facts.group_tags is None:
        found.append(("UNKNOWN", f"the tags of group {facts.group} could not be read"))
    return found


def _others(facts: Facts) -> Claims:
    found: Claims = []
    tags = {**(facts.group_tags or {}), **(facts.tags or {})}
    for pattern, name in CONTROLLERS:
        key = next((key for key in tags if pattern.match(key)), None)
        if key:
            found.append(("OTHER", f"tag {key} says that {name} looks after it"))
    if facts.operator and not _is_ecs(facts.operator):
        found.append(("OTHER", f"EC2 names {facts.operator} as its operator"))
    return found


def _batch(facts: Facts) -> Claims:
    found: Claims = []
    if facts.cluster_batch:
        found.append(("BATCH", f"cluster {facts.cluster} belongs to AWS Batch"))
    for what, tags in (("it", facts.tags), (f"group {facts.group}", facts.group_tags)):
        key = next((key for key in tags or {} if BATCH_TAG.match(key)), None)
        if key:
            found.append(("BATCH", f"{what} has AWS Batch's tag {key}"))
    if facts.group and re.match(r"AWSBatch-", facts.group):
        found.append(("BATCH", f"group {facts.group} has AWS Batch's name"))
    return found


def _ecs(facts: Facts) -> Claims:
    found: Claims = []
    if facts.provider_kind == "MANAGED":
        found.append(("ECS", f"capacity provider {facts.provider} is one of ECS Managed Instances"))
    if facts.operator and _is_ecs(facts.operator):
        found.append(("ECS", f"EC2 names {facts.operator} as its operator"))
    return found


def _is_ecs(principal: str) -> bool:
    return principal.startswith("ecs.amazonaws.com")


def _group(facts: Facts) -> Claims:
    tagged = (facts.tags or {}).get(GROUP_TAG, "")
    if not facts.group:
        if tagged and facts.group is not None:
            return [("UNKNOWN", f"its tag names group {tagged}, but Auto Scaling knows it in no group")]
        return []
    found: Claims = [("GROUP", f"Auto Scaling group {facts.group} has it as a member")]
    if tagged and tagged != facts.group:
        found.append(("UNKNOWN", f"its tag names another group, {tagged}"))
    if facts.provider_kind == "GROUP" and facts.provider_group not in ("", facts.group):
        found.append(
            ("UNKNOWN", f"its capacity provider {facts.provider} works with another group, {facts.provider_group}")
        )
    return found


def _alone(facts: Facts) -> Claims:
    """No controller, no group: a launch template may stand for it, unless something speaks against it."""
    tags = facts.tags or {}
    if facts.provider_kind == "GROUP":
        why = f"group {facts.provider_group} of capacity provider {facts.provider} does not have it as a member"
        return [("PLAIN", why)]
    if facts.provider_kind not in ("", None):
        return [("UNKNOWN", f"capacity provider {facts.provider} is of a kind that we do not know")]
    if FLEET_TAG in tags:
        return [("OTHER", f"EC2 Fleet {tags[FLEET_TAG]} launched it")]
    if STACK_TAG in tags:
        return [("PLAIN", f"CloudFormation stack {tags[STACK_TAG]} made it")]
    if TEMPLATE_TAG in tags:
        return [("TEMPLATE", f"it was launched from template {tags[TEMPLATE_TAG]}, and no group has it")]
    return [("PLAIN", "no group has it, and it was launched without a template")]

"""Every AWS operation that healthboard sends, by the process that may send it. What is not here is not sent.

The one truth: the client factory refuses the rest before it leaves, and the shipped IAM policies (docs/aws/) list exactly
these. Names as boto3's CamelCase.
"""

from __future__ import annotations

from collections.abc import Mapping

Operations = Mapping[str, frozenset[str]]


def _of(**services: str) -> Operations:
    return {service: frozenset(names.split()) for service, names in services.items()}


def _both(one: Operations, other: Operations) -> Operations:
    return {name: one.get(name, frozenset()) | other.get(name, frozenset()) for name in {*one, *other}}


#: each credential is asked whose it is before it is used; AWS lets everybody ask
WHO = _of(sts="GetCallerIdentity")
#: collecting, deciding, verifying. Of these only the queue's change anything, and only the queue of our own events
_READING = _of(
    ec2="DescribeInstances DescribeInstanceStatus DescribeInstanceTypes DescribeLaunchTemplateVersions",
    ecs="""ListClusters ListContainerInstances ListServices ListTasks DescribeClusters DescribeContainerInstances
        DescribeServices DescribeTasks DescribeCapacityProviders GetTaskProtection""",
    autoscaling="DescribeAutoScalingGroups DescribeScalingActivities DescribeInstanceRefreshes",
    sqs="GetQueueUrl ReceiveMessage DeleteMessageBatch",
)
READER = _both(WHO, _READING)
#: a repair looks for itself before every step
LOOKING = _of(
    ec2="""DescribeInstances DescribeInstanceAttribute DescribeLaunchTemplateVersions DescribeCapacityReservations
        DescribeSpotInstanceRequests GetConsoleOutput""",
    ecs="""ListContainerInstances ListTasks DescribeClusters DescribeContainerInstances DescribeServices DescribeTasks
        DescribeTaskDefinition GetTaskProtection""",
    autoscaling="""DescribeAutoScalingGroups DescribeAutoScalingInstances DescribeScalingActivities
        DescribeInstanceRefreshes""",
)
CHANGING = _of(
    ec2="RunInstances TerminateInstances RebootInstances StopInstances StartInstances",
    ecs="UpdateContainerInstancesState DeregisterContainerInstance",
    autoscaling="EnterStandby ExitStandby DetachInstances SetDesiredCapacity TerminateInstanceInAutoScalingGroup",
)
ACTOR = _both(WHO, _both(LOOKING, CHANGING))
_NONE: Operations = {}
#: by `HEALTHBOARD_PROCESS`
OF: dict[str, Operations] = {
    "web": _NONE, "beat": _NONE, "sender": _NONE, "reader": READER, "actor": ACTOR, "all": _both(READER, ACTOR),
}  # fmt: skip
#: `manage.py probe_aws`, which a person runs with rights of their own on machines that are thrown away
PROBE = _both(
    _both(READER, ACTOR),
    _of(
        ec2="CreateLaunchTemplate DeleteLaunchTemplate",
        ecs="""CreateCluster DeleteCluster CreateService DeleteService RegisterTaskDefinition DeregisterTaskDefinition
            ListTaskDefinitions RunTask StopTask UpdateTaskProtection""",
        autoscaling="CreateAutoScalingGroup UpdateAutoScalingGroup DeleteAutoScalingGroup",
        events="PutEvents",
    ),
)


def changes(service: str, operation: str) -> bool:
    return operation in CHANGING.get(service, ())

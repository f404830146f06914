"""The handlers: plain functions ``name(world, p) -> dict``, named as boto3's methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from botocore import xform_name

from healthboard.sandbox.calls import (
    autoscaling_change,
    autoscaling_make,
    autoscaling_read,
    ec2_change,
    ec2_instances,
    ec2_make,
    ec2_read,
    ec2_run,
    ec2_spot,
    ecs_change,
    ecs_instances,
    ecs_make,
    ecs_read,
    ecs_tasks,
    sqs,
    sts,
)
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World

Handler = Callable[[World, dict[str, Any]], dict[str, Any]]
MODULES = {
    "ec2": (ec2_instances, ec2_read, ec2_run, ec2_change, ec2_make, ec2_spot),
    "ecs": (ecs_read, ecs_instances, ecs_tasks, ecs_change, ecs_make),
    "autoscaling": (autoscaling_read, autoscaling_change, autoscaling_make),
    "sts": (sts,),
    "sqs": (sqs,),
}
READING = ("Describe", "List", "Get", "AssumeRole")


@cache
def handler_of(service: str, operation: str) -> Handler:
    """Raises AwsError for an operation that exists at AWS but not here."""
    name = xform_name(operation)
    for module in MODULES.get(service, ()):
        found = getattr(module, name, None)
        if found is not None and found.__module__ == module.__name__:
            return found
    code = "UnknownOperationException" if service == "ecs" else "UnsupportedOperation"
    raise AwsError(code, f"The sandbox does not know {service}:{operation}.")


def is_changing(operation: str) -> bool:
    return not operation.startswith(READING)

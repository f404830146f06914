"""Whether EC2 would start another instance by itself once this one ends: a persistent Spot request does, for each."""

from __future__ import annotations

import re
from typing import Any

from botocore.exceptions import ClientError

from workers.repair.look import AwsTrouble, ask_about
from workers.repair.run import Run

_NO_RIGHT = re.compile(r"UnauthorizedOperation|AccessDenied")
_AGAIN = "when the instance ends, EC2 starts another one by itself"


def starts_another(run: Run, version: dict[str, Any] | None) -> str | None:
    """What stands against its end, in words; None where nothing does. `version`: the launch data of its template's version.

    Raises AwsTrouble where EC2 leaves out what must be known.
    """
    if version is None:
        raise AwsTrouble("DescribeLaunchTemplateVersions does not tell what the version holds")
    market = (version.get("InstanceMarketOptions") or {}).get("SpotOptions") or {}
    if market.get("SpotInstanceType") == "persistent":  # its replacement's request would persist as well
        return (
            f"Version {run.instance.template_version} of its launch template makes persistent Spot requests: {_AGAIN}. "
            "Cancel its Spot request, then end it and start another one by hand"
        )
    request = run.look.ec2.get("SpotInstanceRequestId")
    if not request:
        if "spot" in (run.look.ec2.get("InstanceLifecycle"), run.instance.purchase):
            raise AwsTrouble("DescribeInstances does not tell its Spot request")
        return None
    return _persists(run, request)


def _persists(run: Run, request: str) -> str | None:
    try:
        answer = ask_about(run.client("ec2").describe_spot_instance_requests, SpotInstanceRequestIds=[request])
    except AwsTrouble as trouble:
        cause = trouble.__cause__
        if isinstance(cause, ClientError) and _NO_RIGHT.match(cause.response["Error"].get("Code", "")):
            return (
                f"Whether its Spot request {request} is persistent is not known: ec2:DescribeSpotInstanceRequests is not "
                "allowed. Allow it (docs/aws/actor-policy.json), then approve again"
            )
        raise
    if answer is None:
        return f"EC2 does not know its Spot request {request}: end the instance and start another one by hand"
    told = next((r for r in answer["SpotInstanceRequests"] if r.get("SpotInstanceRequestId") == request), {})
    if not told.get("Type") or not told.get("State"):
        raise AwsTrouble("DescribeSpotInstanceRequests does not tell whether its request is persistent")
    if told["Type"] == "one-time" or told["State"] == "cancelled":
        return None
    return (
        f"Its Spot request {request} is persistent: {_AGAIN}. Cancel the request, which leaves the instance running, then "
        "approve again"
    )

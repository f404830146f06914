"""The service models that botocore ships, and the protocol each of them speaks."""

from __future__ import annotations

from functools import cache

import botocore.session
from botocore.model import ServiceModel

SERVICES = ("ec2", "ecs", "autoscaling", "sts", "sqs")
_session = botocore.session.Session()


@cache
def service_model(service: str) -> ServiceModel:
    return _session.get_service_model(service)


@cache
def protocol_of(service: str) -> str:
    """``ec2``, ``query`` or ``json``: what botocore will really speak for this service."""
    return service_model(service).resolved_protocol if service in SERVICES else "query"

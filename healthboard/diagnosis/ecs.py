"""ECS container instances to readings: the Describe answer and the two event shapes, by one reader of checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from healthboard.diagnosis.names import gpu_uuid, gpus_of_type
from healthboard.diagnosis.parsed import check_status, parse_time
from healthboard.diagnosis.signals import CheckStatus, Event, Reading

_SINCE = re.compile(r"disconnected since (.{8,40}?)\s*$", re.IGNORECASE)
_XID = re.compile(r"^XID_(\d{1,4})$")
#: In these states the instance is not, or not yet, a member: its agent and GPUs say nothing.
OUTSIDE = frozenset({"INACTIVE", "DEREGISTERING", "REGISTRATION_FAILED", "REGISTERING"})


def read_container_instance(item: Any, *, at: datetime) -> tuple[list[Event], list[Reading]]:
    """Readings of one `containerInstances` row; the reason of an impaired accelerated device gives an event too.

    Unknown check types are kept as readings under their own name.
    """
    if not isinstance(item, Mapping):
        return [], []
    instance = _text(item.get("ec2InstanceId"))
    status = _text(item.get("status"))
    common = {"version": item.get("version") if isinstance(item.get("version"), int) else None}
    readings: list[Reading] = []

    def add(name: str, value: Any, **attrs: Any) -> None:
        kept = {k: v for k, v in {**common, **attrs}.items() if v is not None}
        readings.append(Reading(name, value, "ecs", at, at, attrs=kept, instance=instance))

    if status:
        running = item.get("runningTasksCount")
        add(
            "ECS_STATUS", status, reason=_text(item.get("statusReason")),
            running=running if isinstance(running, int) else None, arn=_text(item.get("containerInstanceArn")),
        )  # fmt: skip
    health = item.get("healthStatus")
    details = health.get("details") if isinstance(health, Mapping) else None
    events: list[Event] = []
    if status not in OUTSIDE:
        connected = item.get("agentConnected")
        word = CheckStatus.OK if connected is True else CheckStatus.IMPAIRED
        add("AGENT_CONNECTIVITY", word if isinstance(connected, bool) else CheckStatus.INSUFFICIENT_DATA)
        events = read_checks(details, at=at, instance=instance, add=add)
        if isinstance(health, Mapping) and not details:
            _overall(health.get("overallStatus"), add)
        _gpus(item, add)
    return events, _merged(readings)


def read_event(envelope: Any) -> tuple[list[Event], list[Reading]]:
    """A *Container Instance State Change* or *Health Change* event; anything else gives nothing.

    A state change is dated by its own `updatedAt`, since events arrive late and in any order.
    """
    detail = envelope.get("detail") if isinstance(envelope, Mapping) else None
    if not isinstance(detail, Mapping):
        return [], []
    at = parse_time(detail.get("updatedAt")) or parse_time(envelope.get("time")) or datetime.fromtimestamp(0, UTC)
    if envelope.get("detail-type") == "ECS Container Instance State Change":
        return read_container_instance(detail, at=at)
    if envelope.get("detail-type") != "ECS Container Instance Health Change":
        return [], []
    instance = _text(detail.get("ec2InstanceId"))
    readings: list[Reading] = []

    def add(name: str, value: Any, **attrs: Any) -> None:
        kept = {k: v for k, v in attrs.items() if v is not None}
        readings.append(Reading(name, value, "ecs", at, at, attrs=kept, instance=instance))

    checks = detail.get("healthChecks")
    events = read_checks(checks, at=at, instance=instance, add=add)
    if not checks:
        _overall(detail.get("overallStatus"), add)
    return events, readings


def read_checks(checks: Any, *, at: datetime, instance: str | None, add: Any) -> list[Event]:
    """One reader for `healthStatus.details` and `healthChecks`; adds a reading per check, returns Xid events."""
    events = []
    for check in checks if isinstance(checks, list) else []:
        kind = check.get("type") if isinstance(check, Mapping) else None
        if not isinstance(kind, str) or not kind:
            continue
        status, reason = check_status(check.get("status")), _text(check.get("statusReason"))
        changed = parse_time(check.get("lastStatusChange"))
        attrs: dict[str, Any] = {"reason": reason, "changed": changed.isoformat() if changed else None}
        if reason and (m := _SINCE.search(reason)) and (since := _any_time(m[1])):
            attrs["impaired_since"] = since.isoformat()
        add(kind, status, **attrs)
        if kind == "ACCELERATED_COMPUTE" and status is CheckStatus.IMPAIRED and reason and (m := _XID.match(reason)):
            attrs = {"named_by": "ECS"}
            events.append(Event(changed or at, f"XID_{int(m[1])}", "ecs", attrs=attrs, text=reason, instance=instance))
    return events


def _overall(word: Any, add: Any) -> None:
    if word is not None:
        add("ECS_OVERALL", check_status(word))


def _gpus(item: Mapping[str, Any], add: Any) -> None:
    resources = item.get("registeredResources")
    if not isinstance(resources, list):
        return
    attributes = item.get("attributes")
    kind = next(
        (
            a.get("value")
            for a in (attributes if isinstance(attributes, list) else [])
            if isinstance(a, Mapping) and a.get("name") == "ecs.instance-type"
        ),
        None,
    )
    kind = kind if isinstance(kind, str) else None
    uuids: list[str] | None = None
    for resource in resources:
        if isinstance(resource, Mapping) and resource.get("name") == "GPU":
            values = resource.get("stringSetValue")
            uuids = [gpu_uuid(v) or v for v in values if isinstance(v, str)] if isinstance(values, list) else None
    expected = gpus_of_type(kind)
    if uuids is None and not expected:
        return
    # a GPU type without a GPU resource registered none
    add("ECS_GPUS", sorted(uuids or []), expected=expected, instance_type=kind)


def _merged(readings: list[Reading]) -> list[Reading]:
    """One reading a name: `agentConnected` and the AGENT_CONNECTIVITY check speak of the same thing."""
    rank = {CheckStatus.IMPAIRED: 0, CheckStatus.OK: 1, CheckStatus.INITIALIZING: 2, CheckStatus.INSUFFICIENT_DATA: 3}
    found: dict[str, Reading] = {}
    for reading in readings:
        old = found.get(reading.name)
        if old is None or (reading.name == "AGENT_CONNECTIVITY" and rank[reading.value] <= rank[old.value]):
            found[reading.name] = reading
    return list(found.values())


def _any_time(text: str) -> datetime | None:
    """ECS writes the time of a disconnect in words that it does not specify."""
    cleaned = text.strip().removesuffix("UTC").strip()
    return parse_time(cleaned)


def _text(value: Any) -> str | None:
    return value[:300] if isinstance(value, str) and value else None

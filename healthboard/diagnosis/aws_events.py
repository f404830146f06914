"""Events that EventBridge brings about EC2: Spot, rebalance, Capacity Blocks, instance states, AWS Health.

Notices of something that will happen are known events, never faults. What an event says is a hint until a Describe
confirms it; AWS Health's scheduled retirements are the exception that EC2 itself repeats in its status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from healthboard.diagnosis.parsed import parse_time
from healthboard.diagnosis.signals import Event, Reading

_NOTICES = (
    ("Spot Instance Interruption", "EC2_SPOT_INTERRUPTION"),
    ("Rebalance Recommendation", "EC2_REBALANCE"),
    ("Capacity Block Reservation Expiration", "CAPACITY_BLOCK_ENDING"),
    ("Capacity Block Expiration", "CAPACITY_BLOCK_ENDING"),
)
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}\b")
#: us-east-1a, or the id of a zone: use1-az2
_ZONE = re.compile(r"\b(?:[a-z]{2}(?:-[a-z]{2,12}){1,2}-\d[a-z]|[a-z]{3,5}\d-az\d{1,2})\b")


def read(envelope: Any) -> tuple[list[Event], list[Reading]]:
    """Events and readings of one envelope; an unknown one gives nothing. Several instances give one event each."""
    detail = envelope.get("detail") if isinstance(envelope, Mapping) else None
    if not isinstance(detail, Mapping):
        return [], []
    kind = str(envelope.get("detail-type") or "")
    at = parse_time(envelope.get("time")) or datetime.fromtimestamp(0, UTC)
    if kind == "AWS Health Event" or kind.startswith("AWS Health"):
        return _health(envelope, detail, at), []
    instances = _instances(envelope, detail) or [None]
    if kind == "EC2 Instance State-change Notification" and isinstance(detail.get("state"), str):
        return [], [Reading("EC2_STATE", detail["state"], "ec2", at, at, instance=name) for name in instances]
    code = next((code for words, code in _NOTICES if words in kind), None)
    if code is None:
        return [], []
    text = f"{kind} {detail.get('instance-action') or ''}".strip()
    ends = parse_time(detail.get("end-date"))
    attrs = {"ends": ends.isoformat()} if ends else {}
    return [Event(at, code, "ec2", text=text[:200], attrs=attrs, instance=name) for name in instances], []


def is_known(envelope: Any) -> bool:
    """Whether the envelope is of a kind that `read` understands, whatever it says."""
    kind = str(envelope.get("detail-type") or "") if isinstance(envelope, Mapping) else ""
    words = ("AWS Health", "EC2 ", "Spot", "Capacity")
    return any(word in kind for word in words)


def _health(envelope: Mapping[str, Any], detail: Mapping[str, Any], at: datetime) -> list[Event]:
    closed = str(detail.get("statusCode") or "").lower() == "closed"
    kind = str(detail.get("eventTypeCode") or "")
    upper = kind.upper()
    if closed:
        topic = "closed"
    elif "RETIREMENT" in upper or "STOP_SCHEDULED" in upper:
        topic = "retirement"
    elif "REBOOT" in upper:
        topic = "reboot"
    elif "MAINTENANCE" in upper:
        topic = "maintenance"
    elif str(detail.get("eventTypeCategory")) == "issue" or "ISSUE" in upper or "POWER" in upper:
        topic = "issue"
    else:
        topic = "notice"
    attrs = {
        "topic": topic,
        "type": kind,
        "region": detail.get("eventRegion"),
        "start": _when(detail.get("startTime")),
        "arn": str(detail.get("eventArn") or "")[:300],
        "service": str(detail.get("service") or "")[:40],
    }
    text = ""
    words = detail.get("eventDescription")
    if isinstance(words, list) and words and isinstance(words[0], Mapping):
        text = str(words[0].get("latestDescription") or "")
    if ends := _when(detail.get("endTime")):
        attrs["ends"] = ends
    if zone := _zone(detail, text):
        attrs["zone"] = zone
    names: list[str | None] = list(_instances(envelope, detail)) or [None]
    return [Event(at, "AWS_HEALTH_EVENT", "aws-health", None, (text or kind)[:300], attrs, instance=n) for n in names]


def _when(value: Any) -> str:
    """A time of AWS Health, which writes it as mail does, in ISO 8601; what is none stays as it is, cut."""
    if not isinstance(value, str):
        return ""
    try:
        found = parse_time(value) or parsedate_to_datetime(value).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, IndexError):
        return value[:40]
    return found.isoformat()


def _zone(detail: Mapping[str, Any], text: str) -> str:
    """The zone that the event names; its text counts where it names one alone."""
    told = detail.get("availabilityZone")
    if isinstance(told, str) and _ZONE.fullmatch(told):
        return told
    named = set(_ZONE.findall(text))
    return named.pop() if len(named) == 1 else ""


def _instances(envelope: Mapping[str, Any], detail: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    if isinstance(detail.get("instance-id"), str):
        found.append(detail["instance-id"])
    entities = detail.get("affectedEntities")
    closed = str(detail.get("statusCode") or "").lower() == "closed"
    for entity in entities if isinstance(entities, list) else []:
        if isinstance(entity, Mapping) and (closed or str(entity.get("status", "")).upper() != "RESOLVED"):
            found += _INSTANCE.findall(str(entity.get("entityValue") or ""))
    resources = envelope.get("resources")
    for resource in resources if isinstance(resources, list) and not entities else []:
        found += _INSTANCE.findall(str(resource))
    return list(dict.fromkeys(found))

"""EC2 `DescribeInstanceStatus` to readings. A member that is absent is unknown, never good and never bad."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from healthboard.diagnosis.parsed import check_status
from healthboard.diagnosis.signals import CheckStatus, Event, Reading

#: Our reading -> the member of the answer.
CHECKS = {"EC2_SYSTEM": "SystemStatus", "EC2_INSTANCE": "InstanceStatus", "EC2_ATTACHED_EBS": "AttachedEbsStatus"}
#: Worst first: what a reading shows when several events are scheduled.
EVENT_ORDER = ("instance-retirement", "instance-stop", "system-reboot", "instance-reboot", "system-maintenance")
_OVER = re.compile(r"^\s*\[\s*(completed|cancell?ed)\s*\]", re.IGNORECASE)


def read_status(item: Any, *, at: datetime) -> tuple[list[Event], list[Reading]]:
    """Readings of one row of ``InstanceStatuses``; no events, since EC2 tells states only.

    Checks of an instance that does not run say nothing and are left out.
    """
    if not isinstance(item, Mapping):
        return [], []
    instance = item.get("InstanceId") if isinstance(item.get("InstanceId"), str) else None
    zone = item.get("AvailabilityZone")
    readings: list[Reading] = []

    def add(name: str, value: Any, **attrs: Any) -> None:
        readings.append(Reading(name, value, "ec2", at, at, attrs=attrs, instance=instance))

    state = _member(item, "InstanceState").get("Name")
    if isinstance(state, str):
        add("EC2_STATE", state, zone=zone)
    if state in (None, "running"):
        for name, member in CHECKS.items():
            _check(add, name, item, member)
        performance = item.get("PerformanceStatus")
        if isinstance(performance, Mapping) and performance.get("Status") not in (None, "not-applicable"):
            advice = {"remediation": performance.get("Remediation"), "impaired_since": performance.get("ImpairedSince")}
            add("EC2_PERFORMANCE", check_status(performance.get("Status")), **_strings(advice))
    coming = scheduled_events(item)
    first = coming[0] if coming else {}
    add("EC2_SCHEDULED_EVENT", first.get("code"), events=coming, **{k: v for k, v in first.items() if k != "code"})
    return [], readings


def _check(add: Any, name: str, item: Mapping[str, Any], member: str) -> None:
    summary = item.get(member)
    if not isinstance(summary, Mapping) or summary.get("Status") is None:
        return add(name, CheckStatus.INSUFFICIENT_DATA, absent=True)
    if summary["Status"] == "not-applicable":
        return None
    details = summary.get("Details")
    details = [d for d in details if isinstance(d, Mapping)] if isinstance(details, list) else []
    since = next((d["ImpairedSince"] for d in details if d.get("ImpairedSince")), None)
    return add(name, check_status(summary["Status"]), **_strings({"impaired_since": since}))


def scheduled_events(item: Mapping[str, Any]) -> list[dict[str, str]]:
    """The events still to come, worst first; finished ones stay listed by EC2 for a week and are left out."""
    found = []
    events = item.get("Events")
    for event in events if isinstance(events, list) else []:
        if not isinstance(event, Mapping) or not isinstance(event.get("Code"), str):
            continue
        description = str(event.get("Description") or "")
        if _OVER.match(description):
            continue
        row = {"code": event["Code"], "description": description[:200]}
        row.update(_strings({"id": event.get("InstanceEventId"), "not_before": event.get("NotBefore")}))
        found.append(row)
    rank = {code: n for n, code in enumerate(EVENT_ORDER)}
    return sorted(found, key=lambda row: rank.get(row["code"], len(rank)))


def _member(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = item.get(key)
    return value if isinstance(value, Mapping) else {}


def _strings(values: Mapping[str, Any]) -> dict[str, str]:
    """JSON-friendly texts of what is there; boto3 gives datetimes."""
    return {k: v.isoformat() if isinstance(v, datetime) else str(v) for k, v in values.items() if v is not None}

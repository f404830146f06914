"""Auto Scaling groups of one place: members, sizes, what is suspended. Also the two histories that a repair asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from healthboard.fleet.models import Account, Pool
from workers.collect import sources, store
from workers.collect.reader import Blind, Reader


@dataclass(frozen=True, slots=True)
class Groups:
    """`by_name`: group -> its description and tags; `member`: instance id -> (group, lifecycle state); `rolling`: of
    the groups behind our pools, whether an instance refresh is under way (left out where that could not be read)."""

    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)
    member: dict[str, tuple[str, str]] = field(default_factory=dict)
    rolling: dict[str, bool | None] = field(default_factory=dict)

    def tags(self, name: str) -> dict[str, str] | None:
        group = self.by_name.get(name)
        return store.tags_of(group) if group is not None else None


def collect(account: Account, region: str) -> Groups | None:
    """All groups of the place; None if they could not be read, or were just read by another round."""
    claim = sources.claim(account, region, "autoscaling")
    if claim is None:
        return None
    reader = None
    try:
        reader = Reader("autoscaling", account=account.account_id, region=region, touch=claim.touch)
        groups = list(reader.pages("describe_auto_scaling_groups", "AutoScalingGroups", size=100))
    except Blind as blind:
        claim.failed(blind, calls=reader.calls if reader else 0)
        return None
    found = read(groups)
    ours = Pool.objects.filter(account=account, region=region, group_name__in=list(found.by_name), cluster__batch=False)
    for name in sorted(set(ours.values_list("group_name", flat=True))):
        try:
            found.rolling[name] = refreshes_running(reader, name)
        except Blind:
            break  # AWS is in trouble: what the others do is not known either
    claim.good(calls=reader.calls)
    return found


def read(groups: list[dict[str, Any]]) -> Groups:
    found = Groups()
    for group in groups:
        name = group.get("AutoScalingGroupName")
        if not name:
            continue
        found.by_name[name] = group
        for member in group.get("Instances") or []:
            found.member[member.get("InstanceId", "")] = (name, member.get("LifecycleState", ""))
    return found


def columns(group: dict[str, Any]) -> dict[str, Any]:
    """What a pool keeps of its group."""
    return {
        "desired": group.get("DesiredCapacity"),
        "minimum": group.get("MinSize"),
        "maximum": group.get("MaxSize"),
        "suspended": sorted(p["ProcessName"] for p in group.get("SuspendedProcesses") or [] if p.get("ProcessName")),
        "health_check_type": group.get("HealthCheckType") or "",
        "target_groups": bool(
            group.get("TargetGroupARNs") or group.get("LoadBalancerNames") or group.get("TrafficSources")
        ),
        "paused_by_tag": store.paused(store.tags_of(group)),
    }


def activities(reader: Reader, group: str, *, at_most: int = 100) -> list[dict[str, Any]]:
    """Newest first. Raises Blind."""
    params = {"AutoScalingGroupName": group, "MaxRecords": min(at_most, 100)}
    return reader.call("describe_scaling_activities", **params).get("Activities") or []


def refreshes_running(reader: Reader, group: str) -> bool:
    """An instance refresh is under way, or about to be. Raises Blind."""
    answer = reader.call("describe_instance_refreshes", AutoScalingGroupName=group, MaxRecords=5)
    return under_way(answer.get("InstanceRefreshes") or [])


def under_way(refreshes: list[dict[str, Any]]) -> bool:
    """Whether one of them is not in a state that AWS names as an end: one that is cancelled or rolled back still acts."""
    over = {"Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"}
    return any(refresh.get("Status") not in over for refresh in refreshes)

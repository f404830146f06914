"""Where a replacement of our own is launched: in the old machine's zone, or elsewhere while that is in trouble.

Elsewhere means a zone in which the pool already has members, where neither the template nor a placement group nor a
reservation ties it to one.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Count

from healthboard.fleet.models import Instance
from healthboard.repairs import zones
from workers.repair import origin
from workers.repair.look import ask_aws
from workers.repair.run import Run


def home(run: Run) -> dict[str, Any]:
    """The old machine's own place: {"zone", "request": what RunInstances takes}."""
    old = origin.of(run)
    return _place(run, old["zone"], old["subnet"])


def _place(run: Run, zone: str, subnet: str) -> dict[str, Any]:
    """EC2 takes no subnet beside network interfaces, also where these stand in the template: there the template's own
    are sent, each with a subnet, or nothing where each of them names its own."""
    interfaces = _interfaces(run)
    if not interfaces:
        return {"zone": zone, "request": {"SubnetId": subnet}}
    if all(_placed(one) for one in interfaces):
        return {"zone": zone, "request": {}}
    # all of them and whole: how EC2 would join a part with the template's is then no question
    sent = [one if _placed(one) else {**one, "SubnetId": subnet} for one in interfaces]
    return {"zone": zone, "request": {"NetworkInterfaces": sent}}


def _placed(interface: dict[str, Any]) -> bool:
    """An interface that exists already is in its subnet."""
    return bool(interface.get("SubnetId") or interface.get("NetworkInterfaceId"))


def first(run: Run) -> tuple[dict[str, Any], str]:
    """The place to begin with, and a note where it is not the old machine's zone."""
    own = home(run)
    if why := _trouble(run, own["zone"]):
        for other in _others(run, own):
            if not _trouble(run, other["zone"]):
                return other, f"in {other['zone']}, since {own['zone']} is in trouble: {why}"
    return own, ""


def after(run: Run, refused: str) -> dict[str, Any] | None:
    """Where to try next after capacity was refused in the zone `refused`: one without trouble, else the one that was
    refused longest ago; None where there is no other."""
    own = run.facts.get("launch_home") or home(run)
    places = [p for p in (own, *_others(run, own)) if p["zone"] != refused]
    free = [p for p in places if not _trouble(run, p["zone"])]
    if free:
        return free[0]
    at = run.instance
    short = [(zones.short_since(at.account, at.region, p["zone"], at.instance_type), p) for p in places]
    return min((pair for pair in short if pair[0]), key=lambda pair: pair[0], default=(None, None))[1]


def told(run: Run) -> str:
    """For a group, which chooses its zones itself: which of its pool's are in trouble, in words; or empty."""
    names = _members(run).values_list("zone", flat=True).distinct().order_by("zone")
    found = [f"{zone}: {why}" for zone in names if (why := _trouble(run, zone))]
    return f"zones in trouble, among which the group chooses itself: {'; '.join(found)}" if found else ""


def _trouble(run: Run, zone: str) -> str:
    at = run.instance
    return zones.trouble(at.account, at.region, zone, at.instance_type)


def _members(run: Run):
    return Instance.objects.filter(pool=run.instance.pool_id, gone_at=None, state="running").exclude(zone="")


def _others(run: Run, own: dict[str, Any]) -> list[dict[str, Any]]:
    """Places of the pool's other zones, those with most members first."""
    at = run.instance
    if at.pool_id is None or origin.of(run)["tied"]:
        return []
    rows = _members(run).exclude(zone=own["zone"]).exclude(pk=at.pk)
    names = rows.values("zone").annotate(n=Count("pk")).order_by("-n", "zone").values_list("zone", flat=True)
    if not names or _tied(run):
        return []
    found = []
    for zone in names:
        mate = rows.filter(zone=zone).order_by("instance_id").values_list("instance_id", flat=True)[0]
        answer = ask_aws(run.client("ec2").describe_instances, Filters=[{"Name": "instance-id", "Values": [mate]}])
        item = next((i for r in answer["Reservations"] for i in r["Instances"]), {})
        vpc = origin.of(run)["vpc"]
        if item.get("SubnetId") and (not vpc or item.get("VpcId") == vpc):
            found.append(_place(run, zone, item["SubnetId"]))
    return found


def _tied(run: Run) -> bool:
    """Whether the template version names its subnet, zone or placement group."""
    place = run.launch_data.get("Placement") or {}
    return any(map(_placed, _interfaces(run))) or bool(place.get("AvailabilityZone") or place.get("GroupName"))


def _interfaces(run: Run) -> list[dict[str, Any]]:
    return list(run.launch_data.get("NetworkInterfaces") or ())

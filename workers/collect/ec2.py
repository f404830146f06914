"""EC2 in one place: what instances there are, how EC2 finds them, and who owns them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Q

from healthboard import aws, clock
from healthboard.diagnosis import ec2 as diagnosis
from healthboard.diagnosis import names
from healthboard.fleet import itself, record
from healthboard.fleet.models import Account, Instance, Pool
from workers.collect import autoscaling, pools, sources, store
from workers.collect.ownership import owner_columns
from workers.collect.reader import Blind, Reader

ENDED = frozenset({"terminated", "shutting-down"})
#: an instance that no source tells of any more is gone after so many full rounds
ROUNDS_UNTIL_GONE = 5
#: (region, type) -> GPUs; types do not change
_gpus: dict[tuple[str, str], int | None] = {}


def collect(account: Account, region: str) -> bool:
    """One round; False if it was not this one's turn, or AWS gave no full answer."""
    claim = sources.claim(account, region, "ec2")
    if claim is None:
        return False
    at = clock.now()  # what AWS says was true when it was asked, or later
    reader = None
    try:
        reader = Reader("ec2", account=account.account_id, region=region, touch=claim.touch)
        told = {
            item["InstanceId"]: item
            for reservation in reader.pages("describe_instances", "Reservations", size=1000)
            for item in reservation.get("Instances") or []
            if item.get("InstanceId")
        }
        params = {"IncludeAllInstances": True, "size": 1000}
        statuses = {
            item["InstanceId"]: item
            for item in reader.pages("describe_instance_status", "InstanceStatuses", **params)
            if item.get("InstanceId")
        }
        _learn_types(reader, region, {item.get("InstanceType") or "" for item in told.values()})
        groups = autoscaling.collect(account, region)
        templates = pools.learn_templates(reader, account, region, told)
    except Blind as blind:
        claim.failed(blind, calls=reader.calls if reader else 0)
        return False
    ours = Instance.objects.filter(account=account, region=region, gone_at=None, seen_at__isnull=False)
    known = set(ours.values_list("instance_id", flat=True))
    doubt = claim.doubt(len(known & told.keys()), len(known), "instances")  # the region may be full of others
    if doubt:
        claim.failed(doubt, calls=reader.calls)
        return False

    def write() -> None:
        rows = _store(account, region, at, told, groups, templates)
        _mark_gone(account, region, at, claim.source.good_rounds)
        readable = [row for row in rows.values() if row.gone_at is None]
        record.record_many("ec2", at, [_item(row, told[row.instance_id], statuses, at) for row in readable])
        claim.good(calls=reader.calls)

    store.settle(account, write)
    return True


def _learn_types(reader: Reader, region: str, types: set[str]) -> None:
    """How many GPUs a type has. A type that EC2 does not tell stays unknown until it does."""
    unknown = sorted(t for t in types if t and (region, t) not in _gpus)
    for start in range(0, len(unknown), 100):
        answer = reader.call("describe_instance_types", InstanceTypes=unknown[start : start + 100])
        for item in answer.get("InstanceTypes") or []:
            devices = (item.get("GpuInfo") or {}).get("Gpus") or []
            counts = [device.get("Count") for device in devices if device.get("Manufacturer", "NVIDIA") == "NVIDIA"]
            _gpus[region, item["InstanceType"]] = None if None in counts else sum(counts)


def gpus_of(region: str, instance_type: str) -> int | None:
    told = _gpus.get((region, instance_type))
    return told if told is not None else names.gpus_of_type(instance_type)


def _store(
    account: Account,
    region: str,
    at: datetime,
    told: dict[str, dict[str, Any]],
    groups: autoscaling.Groups | None,
    templates: dict[str, str],
) -> dict[str, Instance]:
    here = list(Pool.objects.filter(account=account, region=region))
    if groups is not None:  # pools before instances: the order in which everybody locks them
        pools.store_groups(here, groups, at)
    known = store.known_instances(account.pk, region, told)
    book = pools.Book.of(here, account, region, templates)
    values, own = {}, itself.own()
    for instance_id, item in told.items():
        row = known.get(instance_id)
        if row is not None and row.seen_at is not None and row.seen_at >= at:
            continue  # a later round was faster
        if row is None and not _ours(item, region, book, groups):
            continue
        values[instance_id] = _columns(region, item, row, book, groups, own, at)
    fixed = {"account": account, "region": region, "first_seen_at": at}
    stored = store.upsert(Instance, known, values, fixed)
    store.mark_seen(Instance, [row.pk for row in stored.values()], at)
    return stored


def _ours(item: dict[str, Any], region: str, book: pools.Book, groups: autoscaling.Groups | None) -> bool:
    """Is a machine that we do not know yet one to look after? Those in ECS clusters are told by the other round."""
    if (item.get("State") or {}).get("Name") in ENDED:
        return False
    tags = store.tags_of(item)
    if book.pool_for(tags, groups.member.get(item["InstanceId"], ("", ""))[0] if groups else "") is not None:
        return True
    if aws.clusters():
        return False
    return bool(gpus_of(region, item.get("InstanceType") or ""))


def _columns(
    region: str,
    item: dict[str, Any],
    row: Instance | None,
    book: pools.Book,
    groups: autoscaling.Groups | None,
    own: itself.Own,
    at: datetime,
) -> dict[str, Any]:
    tags = store.tags_of(item)
    if row is not None and store.ECS_PAUSE_TAG in row.tags:
        tags[store.ECS_PAUSE_TAG] = row.tags[store.ECS_PAUSE_TAG]
    state = (item.get("State") or {}).get("Name") or ""
    placement = item.get("Placement") or {}
    values: dict[str, Any] = {
        "instance_id": item["InstanceId"],
        "state": state,
        "zone": placement.get("AvailabilityZone") or "",
        "instance_type": item.get("InstanceType") or "",
        "image_id": item.get("ImageId") or "",
        "template_id": tags.get("aws:ec2launchtemplate:id", ""),
        "template_version": tags.get("aws:ec2launchtemplate:version", ""),
        "purchase": item.get("InstanceLifecycle") or "on-demand",
        "reservation_id": item.get("CapacityReservationId") or item.get("CapacityBlockId") or "",
        "placement_group": placement.get("GroupName") or "",
        "private_ip": item.get("PrivateIpAddress"),
        "launched_at": item.get("LaunchTime"),
        "metadata_open": metadata_open(item.get("MetadataOptions") or {}),
        "tags": tags,
        "paused_by_tag": store.paused(tags),
        "is_self": own.has(item["InstanceId"], row.cluster_id if row else None),
        "gpus_expected": gpus_of(region, item.get("InstanceType") or ""),
        "gone_at": ((row.gone_at if row else None) or at) if state == "terminated" else None,
    }
    if state == "terminated" and row is not None:
        for name in ("private_ip", "zone", "image_id"):  # a dead instance's answer is thin: keep what was known
            values[name] = values[name] or getattr(row, name)
    if groups is not None:
        values["group_name"], values["group_state"] = groups.member.get(item["InstanceId"], ("", ""))
    values.update(book.columns(row, tags, values.get("group_name", row.group_name if row else "")))
    values.update(owner_columns(row, item, tags, values, groups))
    return values


def metadata_open(told: dict[str, Any]) -> str:
    """Why a container on a bridge may ask the metadata service for the machine's keys; empty where it may not, or where
    nothing is told of it. Tasks in `host` mode always may."""
    if not told or told.get("HttpEndpoint", "enabled") != "enabled":
        return ""
    reasons = []
    if told.get("HttpTokens") == "optional":
        reasons.append("version 1 is accepted (HttpTokens=optional)")
    if (told.get("HttpPutResponseHopLimit") or 1) > 1:
        reasons.append(f"the hop limit is {told['HttpPutResponseHopLimit']}")
    return " and ".join(reasons)[:100]


def _mark_gone(account: Account, region: str, at: datetime, good_rounds: int) -> None:
    """Instances that EC2 has not told of for several full rounds. A single thin answer makes nothing gone."""
    if good_rounds < ROUNDS_UNTIL_GONE:
        return
    since = at - ROUNDS_UNTIL_GONE * clock.scaled(sources.INTERVAL_S)
    lost = Instance.objects.filter(account=account, region=region, gone_at=None)
    lost = lost.filter(Q(seen_at__lt=since) | Q(seen_at=None, first_seen_at__lt=since))
    for pk, seen_at in list(
        lost.values_list("pk", "seen_at")
    ):  # almost always none; one that was never told has no state
        Instance.objects.filter(pk=pk).update(gone_at=at, **({"state": "terminated"} if seen_at else {}))


def store_some(account: Account, region: str, statuses: list[dict[str, Any]], at: datetime) -> None:
    """State and checks of single instances that were asked for out of turn; what a later round told stays."""
    told = {item.get("InstanceId"): item for item in statuses}
    rows = Instance.objects.select_for_update(of=("self",), no_key=True).order_by("pk")
    rows = rows.filter(account=account, region=region, gone_at=None, instance_id__in=[name for name in told if name])
    fresh = [row for row in rows if row.seen_at is None or row.seen_at < at]
    for row in fresh:
        state = (told[row.instance_id].get("InstanceState") or {}).get("Name")
        Instance.objects.filter(pk=row.pk).update(state=state or row.state, seen_at=at)
    record.record_many("ec2", at, [_item(row, {}, told, at) for row in fresh])


def _item(row: Instance, item: dict[str, Any], statuses: dict[str, dict[str, Any]], at: datetime) -> record.Item:
    """A running instance without a status row is unknown, not fine: the reader says so for each absent check."""
    status = statuses.get(row.instance_id) or {
        "InstanceId": row.instance_id,
        "InstanceState": item.get("State") or {},
        "AvailabilityZone": row.zone,
    }
    events, readings = diagnosis.read_status(status, at=at)
    return record.Item(row, readings, events)

"""EC2: types, attributes, console output, tags, launch templates, reservations."""

from __future__ import annotations

import base64
from typing import Any

from healthboard.sandbox.calls.ec2_instances import pick
from healthboard.sandbox.calls.paging import ec2_filter, ec2_page, tag_list
from healthboard.sandbox.entities import Reservation, Template
from healthboard.sandbox.hardware import TYPES, TypeSpec
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World

CONSOLE_BYTES = 64 * 1024


def describe_instance_types(world: World, p: dict[str, Any]) -> dict[str, Any]:
    names = p.get("InstanceTypes")
    unknown = [n for n in names or () if n not in TYPES]
    if unknown:
        raise AwsError(
            "InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]"
        )
    rows = [TYPES[n] for n in names] if names else list(TYPES.values())
    rows = ec2_filter(p, rows, {"instance-type": lambda t: t.name}, lambda t: {})
    rows, token = ec2_page(p, rows, bool(names), high=100)
    return {"InstanceTypes": [_type(t) for t in rows], "NextToken": token}


def _type(t: TypeSpec) -> dict[str, Any]:
    gpus = {
        "Gpus": [
            {"Name": t.gpu_model, "Manufacturer": "NVIDIA", "Count": t.gpus, "MemoryInfo": {"SizeInMiB": t.gpu_memory}}
        ],
        "TotalGpuMemoryInMiB": t.gpu_memory * t.gpus,
    }
    network: dict[str, Any] = {"EfaSupported": t.efa > 0}
    if t.efa:
        network["EfaInfo"] = {"MaximumEfaInterfaces": t.efa}
    return {
        "InstanceType": t.name,
        "CurrentGeneration": True,
        "BareMetal": False,
        "Hypervisor": "nitro",
        "SupportedUsageClasses": ["on-demand", "spot"],
        "VCpuInfo": {"DefaultVCpus": t.vcpus},
        "MemoryInfo": {"SizeInMiB": t.memory},
        "InstanceStorageSupported": t.gpus > 0,
        "GpuInfo": gpus if t.gpus else None,
        "NetworkInfo": network,
    }


def describe_instance_attribute(world: World, p: dict[str, Any]) -> dict[str, Any]:
    (i,) = pick(world, [p["InstanceId"]])
    values: dict[str, Any] = {
        "disableApiTermination": {"DisableApiTermination": {"Value": i.protected}},
        "disableApiStop": {"DisableApiStop": {"Value": False}},
        "instanceInitiatedShutdownBehavior": {"InstanceInitiatedShutdownBehavior": {"Value": "stop"}},
        "instanceType": {"InstanceType": {"Value": i.type}},
        "userData": {"UserData": {"Value": i.user_data}},
    }
    if p["Attribute"] not in values:
        raise AwsError("InvalidParameterValue", f"Value ({p['Attribute']}) for parameter attribute is invalid.")
    return {"InstanceId": i.id, **values[p["Attribute"]]}


def get_console_output(world: World, p: dict[str, Any]) -> dict[str, Any]:
    (i,) = pick(world, [p["InstanceId"]])
    text = "\n".join(i.console).encode()[-CONSOLE_BYTES:]
    return {"InstanceId": i.id, "Output": base64.b64encode(text).decode(), "Timestamp": world.now()}


def describe_tags(world: World, p: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for kind, table in (("instance", world.instances), ("launch-template", world.templates)):
        rows += [(e.id, kind, k, v) for e in table.values() for k, v in e.tags.items()]
    fields: dict[str, Any] = {
        "resource-id": lambda r: r[0], "resource-type": lambda r: r[1], "key": lambda r: r[2], "value": lambda r: r[3],
    }  # fmt: skip
    rows = ec2_filter(p, rows, fields, lambda r: {r[2]: r[3]})
    rows, token = ec2_page(p, rows, False)
    return {
        "Tags": [{"ResourceId": r[0], "ResourceType": r[1], "Key": r[2], "Value": r[3]} for r in rows],
        "NextToken": token,
    }


def find_template(world: World, id_: str | None, name: str | None) -> Template:
    if id_:
        template = world.templates.get(id_)
        if template is None:
            raise AwsError(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, with template ID {id_}, does not exist.",
            )
        return template
    template = world.template_named(name or "")
    if template is None:
        raise AwsError(
            "InvalidLaunchTemplateName.NotFoundException",
            f"The specified launch template, with template name {name}, does not exist.",
        )
    return template


def resolve_version(template: Template, version: str | None) -> str:
    latest = str(max(map(int, template.versions)))
    number = {"$Default": template.default, "$Latest": latest, None: template.default, "": template.default}.get(
        version, version
    )
    if number not in template.versions:
        raise AwsError(
            "InvalidLaunchTemplateId.VersionNotFound",
            f"Could not find the specified version {version} for the launch template with ID {template.id}.",
        )
    return str(number)


def describe_launch_templates(world: World, p: dict[str, Any]) -> dict[str, Any]:
    ids, names = p.get("LaunchTemplateIds"), p.get("LaunchTemplateNames")
    rows = list(world.templates.values())
    if ids or names:
        rows = [find_template(world, i, None) for i in ids or ()] + [find_template(world, None, n) for n in names or ()]
    rows = ec2_filter(p, rows, {"launch-template-name": lambda t: t.name}, lambda t: t.tags)
    rows, token = ec2_page(p, rows, bool(ids or names), low=1, high=200)
    return {
        "LaunchTemplates": [
            {
                "LaunchTemplateId": t.id,
                "LaunchTemplateName": t.name,
                "CreateTime": t.created_at,
                "CreatedBy": f"arn:aws:iam::{world.account}:root",
                "DefaultVersionNumber": int(t.default),
                "LatestVersionNumber": max(map(int, t.versions)),
                "Tags": tag_list(t.tags),
            }
            for t in rows
        ],
        "NextToken": token,
    }


def describe_launch_template_versions(world: World, p: dict[str, Any]) -> dict[str, Any]:
    id_, name, wanted = p.get("LaunchTemplateId"), p.get("LaunchTemplateName"), p.get("Versions")
    if not (id_ or name):
        if not wanted:
            raise AwsError("MissingParameter", "Either a launch template id or name, or $Latest/$Default, is needed.")
        chosen = [(t, v) for t in world.templates.values() for v in wanted]
    else:
        template = find_template(world, id_, name)
        chosen = [(template, v) for v in wanted or sorted(template.versions, key=int, reverse=True)]
    rows, token = ec2_page(p, [(t, resolve_version(t, v)) for t, v in chosen], False, low=1, high=200)
    return {
        "LaunchTemplateVersions": [
            {
                "LaunchTemplateId": t.id,
                "LaunchTemplateName": t.name,
                "VersionNumber": int(v),
                "DefaultVersion": v == t.default,
                "CreateTime": t.created_at,
                "CreatedBy": f"arn:aws:iam::{world.account}:root",
                "LaunchTemplateData": t.versions[v],
            }
            for t, v in rows
        ],
        "NextToken": token,
    }


def describe_capacity_reservations(world: World, p: dict[str, Any]) -> dict[str, Any]:
    ids = p.get("CapacityReservationIds")
    for id_ in ids or ():
        if id_ not in world.reservations:
            raise AwsError("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{id_}' does not exist")
    rows = [world.reservations[i] for i in ids] if ids else list(world.reservations.values())
    fields: dict[str, Any] = {
        "instance-type": lambda r: r.type, "availability-zone": lambda r: r.zone, "state": lambda r: "active",
    }  # fmt: skip
    rows = ec2_filter(p, rows, fields, lambda r: r.tags)
    rows, token = ec2_page(p, rows, bool(ids), low=1)
    return {"CapacityReservations": [describe_capacity_reservation(world, r) for r in rows], "NextToken": token}


def describe_capacity_reservation(world: World, r: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": r.id,
        "OwnerId": world.account,
        "CapacityReservationArn": world.arn("ec2", f"capacity-reservation/{r.id}"),
        "InstanceType": r.type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": r.zone,
        "Tenancy": "default",
        "TotalInstanceCount": r.total,
        "AvailableInstanceCount": max(0, r.total - reserved(world, r.id)),
        "State": "active",
        "StartDate": r.created_at,
        "EndDateType": "unlimited",
        "InstanceMatchCriteria": "targeted",
        "CreateDate": r.created_at,
        "ReservationType": r.kind_of,
        "Tags": tag_list(r.tags),
    }


def reserved(world: World, reservation: str) -> int:
    return sum(
        1 for i in world.instances.values() if i.reservation == reservation and i.state in ("pending", "running")
    )

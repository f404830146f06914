"""EC2: making and deleting launch templates."""

from __future__ import annotations

from typing import Any

from healthboard.sandbox.calls.ec2_read import find_template
from healthboard.sandbox.entities import Template
from healthboard.sandbox.protocol.errors import AwsError
from healthboard.sandbox.world import World


def create_launch_template(world: World, p: dict[str, Any]) -> dict[str, Any]:
    name = p["LaunchTemplateName"]
    if world.template_named(name) is not None:
        raise AwsError("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
    tags = {t["Key"]: t.get("Value", "") for s in p.get("TagSpecifications") or () for t in s.get("Tags", ())}
    made = world.add(
        Template(
            id="lt-" + world.new_hex("template", 17), name=name, created_at=world.now(),
            versions={"1": dict(p["LaunchTemplateData"])}, tags=tags,
        )
    )  # fmt: skip
    return {"LaunchTemplate": {
        "LaunchTemplateId": made.id, "LaunchTemplateName": name, "CreateTime": made.created_at,
        "DefaultVersionNumber": 1, "LatestVersionNumber": 1,
    }}  # fmt: skip


def delete_launch_template(world: World, p: dict[str, Any]) -> dict[str, Any]:
    found = find_template(world, p.get("LaunchTemplateId"), p.get("LaunchTemplateName"))
    world.remove(found)
    return {"LaunchTemplate": {"LaunchTemplateId": found.id, "LaunchTemplateName": found.name}}

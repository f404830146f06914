"""What a replacement of a launch template's machine is launched from: read while EC2 still tells it.

Of an ended instance EC2 tells neither subnet nor VPC, and after a while no tags: whoever ends it first must know them before.
"""

from __future__ import annotations

from typing import Any

from workers.repair.look import AwsTrouble
from workers.repair.results import Ask
from workers.repair.run import Run
from workers.repair.steps.leave import _choice


def kept(run: Run) -> dict[str, Any]:
    """What is remembered before anything is touched. Raises AwsTrouble where EC2 leaves any of it out."""
    told = _read(run)
    if not told["subnet"] or not told["vpc"]:
        raise AwsTrouble("DescribeInstances does not tell its subnet and VPC")
    if run.look.tags.get("aws:ec2launchtemplate:id") != told["template"]:
        raise AwsTrouble("DescribeInstances does not tell its tags")
    return told


def of(run: Run) -> dict[str, Any]:
    """{"template", "version", "type", "zone", "subnet", "vpc", "tied", "tags"} of the old machine: as it was kept, or as it
    is now in a repair that began before this was kept. `tied`: a placement group or a reservation holds it in its zone."""
    return run.facts.get("launch_from") or _read(run)


def unknown(run: Run) -> Ask | None:
    """A question where nobody tells any more in which subnet it ran. Elsewhere, in the default VPC, nothing is started."""
    if of(run)["subnet"]:
        return None
    if run.look.state and not run.look.gone:
        raise AwsTrouble("DescribeInstances does not tell its subnet")
    return Ask(
        f"EC2 no longer tells in which subnet {run.instance} ran, so nothing is started for it. Start its replacement by "
        "hand, in its pool's subnet, then leave this as it is.",
        (_choice("leave", "Leave it as it is"),),
    )


def _read(run: Run) -> dict[str, Any]:
    at, ec2 = run.instance, run.look.ec2
    return {
        "template": at.template_id, "version": at.template_version, "type": at.instance_type, "zone": at.zone,
        "subnet": ec2.get("SubnetId") or "", "vpc": ec2.get("VpcId") or "", "tags": run.look.tags,
        "tied": bool(at.placement_group or at.reservation_id or ec2.get("CapacityReservationId")),
    }  # fmt: skip

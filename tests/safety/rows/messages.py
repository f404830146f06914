"""T21: whoever may push into the broker has any task called with any argument; nobody is repaired, asked or told by it."""

from __future__ import annotations

from typing import Any

from tests.rights.storm import POOLS, Scene, forge
from tests.safety.rows.alone import driven, result
from tests.safety.site import Site

MESSAGES = 500


def run(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    """Nothing moves while the messages come; afterwards what a person had decided is carried out, once."""
    with driven(site, POOLS) as drive:
        scene = Scene(drive)
        broken = forge(scene, spec["seed"], MESSAGES)
        drive.working = True
        outcome = drive.repaired(scene.given).outcome
        if outcome != "REBOOTED":
            broken.append(f"the repair that was decided came to {outcome}")
        if len(scene.now()["decisions"]) != len(scene.before["decisions"]):
            broken.append("somebody decided")
        return result(broken, size=MESSAGES)

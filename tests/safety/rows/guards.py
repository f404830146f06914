"""T22: a guard is taken out, and the test that is named for it must fail; with the guard it must pass."""

from __future__ import annotations

from typing import Any

from tests.safety import databases, removal
from tests.safety.site import Site


def run(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    databases.copy(databases.BASE, "test_guards")
    folder = site.folder / "guards"
    folder.mkdir(exist_ok=True)
    server = site.postgres.url.rpartition("/")[0]
    return {"broken": removal.broken(spec["point"], f"{server}/guards", folder), "reached": 1, "recovery": 0}

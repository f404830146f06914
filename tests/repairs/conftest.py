from __future__ import annotations

import pytest
from django.conf import settings

from healthboard import aws, clock, wake
from tests.repairs import driver
from workers.repair import engine


@pytest.fixture
def drives(tmp_path, monkeypatch):
    """Makes drives; the installation's home is theirs, its clock their own."""
    from healthboard.api import node_intake

    monkeypatch.setattr(wake, "_quiet_until", float("inf"))  # no broker: nothing waits for one
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    monkeypatch.setattr(settings, "SPEED", driver.SPEED)
    monkeypatch.setattr(aws, "READ_ATTEMPTS", 1)
    monkeypatch.setattr(aws, "_clients", {})
    made: list[driver.Drive] = []
    for limit in ("_measure", "_whole", "_heard"):
        every = getattr(node_intake, limit)
        monkeypatch.setattr(every, "tick", lambda: made[-1].offset if made else 0.0)
        monkeypatch.setattr(every, "last", {})
    driver.seeded()

    def make(pools: str = "train=group:4,solo=template:4", **more) -> driver.Drive:
        made.append(driver.Drive(more.pop("home", tmp_path), pools, **more))
        made[-1].begin()
        made[-1].one_pass = lambda: monkeypatch.setattr(engine, "PASSES", 1)
        return made[-1]

    yield make
    for drive in made:
        drive.stop()
    clock._virtual = None


@pytest.fixture
def drive(db, drives):
    """Two small pools: `train` of a group, `solo` of a template."""
    return drives()

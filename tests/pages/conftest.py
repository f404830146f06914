from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from healthboard import clock
from tests import factories as make


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    """Messages are only wake-ups: the broker is known to be away, so that no click waits for it."""
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


@pytest.fixture
def log_in(db) -> Callable[..., Client]:
    """`log_in("operator", pool="train")` gives a client of a new person with that role there (empty: no role)."""

    def client_of(role: str = "operator", name: str = "", **scope) -> Client:
        client = Client()
        client.force_login(make.person(role, name, **scope))
        session = client.session
        session["auth_at"] = clock.now().isoformat()
        session.save()
        return client

    return client_of


@pytest.fixture
def home(db):
    """A pool with an acting installation that sees."""
    make.switch()
    for name, scope in (("ec2", ""), ("ecs", "gpu"), ("autoscaling", "")):
        make.source(name, scope=scope)
    return make.pool("train")


@pytest.fixture
def case(home):
    on = make.instance(home, verdict="AMBIGUOUS", verdict_code="XID_119")
    gpus = make.gpus(on, 8, bad={3: "error"})
    make.event(on, "XID_119", gpu=gpus[3].uuid, text="NVRM: Xid (PCI:0000:3d:00): 119, Timeout")
    make.reading(on, "EC2_SYSTEM", "OK")
    return make.as_read(make.case(on, gpu=gpus[3].uuid))

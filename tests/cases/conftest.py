from __future__ import annotations

import pytest

from healthboard import wake
from tests import factories
from tests.cases import scene


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr(wake, "_quiet_until", float("inf"))


@pytest.fixture
def time(db):
    with scene.at() as turned:
        yield turned


@pytest.fixture
def operator(db):
    return factories.actor(factories.person("operator", "olga"))


@pytest.fixture
def approver(db):
    return factories.actor(factories.person("approver", "anna"))


@pytest.fixture
def viewer(db):
    return factories.actor(factories.person("viewer", "vera"))


@pytest.fixture
def admin(db):
    return factories.actor(factories.person("admin", "ada"))

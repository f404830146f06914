"""Pauses: who set them, why and until when; each scope holds what it names and nothing else."""

from __future__ import annotations

import pytest

from healthboard.refusals import Invalid, NotAllowed
from healthboard.repairs import brakes
from tests import factories
from tests.cases import scene

pytestmark = pytest.mark.usefixtures("time")
WORK = "llm-train"


@pytest.fixture
def pair():
    """Two machines that share nothing but the account."""
    scene.acting()
    here = scene.machine(factories.pool("solo", "TEMPLATE"))
    return here, scene.machine(factories.pool("other", "TEMPLATE"))


def held(on, *workloads: str) -> str:
    return "; ".join(brakes.against(on, list(workloads), automatic=True))


@pytest.mark.parametrize("scope_kind", ["fleet", "pool", "workload", "instance"])
def test_a_pause_holds_its_scope_until_its_end_and_says_who_why_and_until_when(pair, admin, time, scope_kind):
    here, there = pair
    scope = {"fleet": "", "pool": "solo", "workload": WORK, "instance": here.instance_id}[scope_kind]
    row = brakes.pause(actor=admin, scope_kind=scope_kind, scope=scope, reason="moving racks", until=factories.ago(-60))
    assert f"Paused by {admin.name} until" in held(here, WORK) and "moving racks" in held(here, WORK)
    assert bool(held(there, "another")) == (scope_kind == "fleet")
    time.turn(61)
    assert held(here, WORK) == "", "it ends by itself"
    again = brakes.pause(actor=admin, scope_kind=scope_kind, scope=scope, reason="again", until=factories.ago(-60))
    brakes.end_pause(again.pk, admin)
    assert held(here, WORK) == "" and row.set_by == admin.name


def test_a_pause_is_an_admins_and_needs_a_reason_an_end_and_a_scope(pair, admin, operator):
    good = {"actor": admin, "scope_kind": "pool", "scope": "solo", "reason": "move", "until": factories.ago(-60)}
    for bad, error in (
        ({"actor": operator}, NotAllowed),
        ({"reason": " "}, Invalid),
        ({"until": factories.ago(1)}, Invalid),
        ({"scope": ""}, Invalid),
    ):
        with pytest.raises(error):
            brakes.pause(**{**good, **bad})
    assert held(pair[0]) == ""


@pytest.mark.parametrize("where", ["instance", "pool", "cluster"])
def test_the_tag_holds_on_instance_group_and_cluster(pair, where):
    here, _ = pair
    target = here if where == "instance" else getattr(here, where)
    target.paused_by_tag = True
    target.save()
    here.refresh_from_db()
    assert "healthboard:pause" in held(here)

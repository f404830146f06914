"""Whatever a policy says: drawn policies over drawn fleets, through the reading, the decision, the budget and the brakes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from healthboard import clock
from healthboard.cases import invariants
from healthboard.cases.models import Case
from healthboard.fleet.models import Instance
from healthboard.policies.matching import MATCH_KEYS
from healthboard.policies.models import Policy, PolicyVersion
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Occupancy, Repair
from healthboard.repairs.recipes import recipe
from tests import factories
from tests.cases import scene
from tests.policies import draw
from tests.policies.test_careful_property import everything

#: that nothing may ever be done to
NEVER = ({"owner": "BATCH"}, {"owner": "OTHER"}, {"owner": "UNKNOWN"}, {"owner": "ECS"}, {"is_self": True},
         {"paused_by_tag": True})  # fmt: skip
machines = st.fixed_dictionaries(
    {
        "fault": st.sampled_from(("", "XID_79", "XID_79", "XID_119", "XID_48")),
        "witness": st.booleans(),
        "at": st.sampled_from(({}, {}, {}, {"agent_connected": False}, {"ecs_status": "DRAINING"}, *NEVER)),
    }
)
fleets = st.lists(machines, min_size=2, max_size=4)
#: as free as a policy can be, so that only what no policy may lift is in the way
FREE = {
    "mode_hardware": "auto", "mode_ambiguous": "auto", "tries_24h": 10, "budget_share": 0.5, "repairs_per_hour": None,
    "dead_host": "auto", "unkillable": "auto", "undo_s": 0, "ladder": ["REBOOT", "REPLACE", "RELOCATE"],
    "codes": {"XID_79": {"mode": "auto", "action": "REPLACE"}, "XID_119": {"mode": "auto", "action": "REBOOT"}},
}  # fmt: skip


class _Undo(Exception):
    """Ends an example: its rows are taken back."""


def save(policies: list[Any]) -> None:
    for number, drawn in enumerate(policies):
        data = {
            "name": f"{drawn.name} {number}", "enabled": True, "is_default": drawn.default,
            **{key: "" for key in MATCH_KEYS}, "tags": {}, **drawn.match, "settings": dict(drawn.settings),
        }  # fmt: skip
        made = Policy.objects.create(**data)
        made.current = PolicyVersion.objects.create(policy=made, number=1, data=data, saved_at=clock.now())
        made.save()


def broken(drawn: dict[str, Any], workload: Any) -> Instance:
    on = scene.machine(**drawn["at"])
    factories.task(on, workload)
    if drawn["fault"]:
        gpu = factories.gpus(on, 1)[0].uuid
        scene.shows(on, drawn["fault"])
        if drawn["witness"]:
            scene.lost(on, gpu)
    return on


@pytest.mark.parametrize("free", [False, True])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_no_policy_makes_a_limit_breakable(time, free, data):
    policies = data.draw(draw.policies(most=2)) if not free else []
    policies = [p for p in policies if not p.default]
    default = draw.Snapshot("default", {}, FREE if free else data.draw(everything), default=True)
    fleet = data.draw(fleets)
    with pytest.raises(_Undo), transaction.atomic():
        save([default, *policies])
        _limits_hold(run(time, fleet))
        raise _Undo


def run(time, fleet: list[dict[str, Any]]) -> list[Instance]:
    """Read twice, and start what may start."""
    scene.acting()
    scene.seeing()
    workload = factories.workload("a")
    machines = [broken(drawn, workload) for drawn in fleet]
    for on in machines:
        scene.read(on)
    time.turn(30)
    for on in machines:
        scene.read(on)
    for repair in Repair.objects.order_by("pk"):
        lifecycle.start(repair, "recheck")
    return machines


def test_the_freest_policy_repairs_one_at_a_time_and_never_what_is_not_to_be_touched(time):
    save([draw.Snapshot("default", {}, FREE, default=True)])
    sick = {"fault": "XID_79", "witness": True}
    machines = run(time, [{**sick, "at": at} for at in ({}, {}, *NEVER)])
    assert {repair.instance_id for repair in Repair.objects.all()} == {on.pk for on in machines[:2]}
    assert Repair.objects.filter(state="RUNNING").count() == 1
    _limits_hold(machines)


def _limits_hold(machines: list[Instance]) -> None:
    for repair in Repair.objects.select_related("instance__pool", "decision__case"):
        on = repair.instance
        assert on.owner == "TEMPLATE" and not on.is_self and not on.paused_by_tag, f"INV9: {repair}"
        assert recipe(repair.action, on.owner)
        case = repair.decision.case
        assert case.verdict == "AMBIGUOUS" or (case.verdict == "HARDWARE" and case.may_act), "without a witness"
    out = [on for on in machines if not (on.agent_connected and on.ecs_status == "ACTIVE")]
    taken = Occupancy.objects.filter(released_at=None)
    # fewer than nine: one at a time, and a second only for what is out anyway
    assert sum(one.units for one in taken) <= 1
    assert not any(one.units for one in taken) or len(out) == 0 or taken.count() == 1
    assert taken.count() <= 1 + len(out)
    assert not Case.objects.filter(state="DECIDED", mode__in=("ask", "observe")).exists()
    assert [said for said in invariants.check() if not said.startswith("AUDIT")] == []

"""A zone without capacity is left for another of the pool's zones, each launch by a token of its own."""

from __future__ import annotations

from django.db import transaction

from healthboard import clock
from healthboard.people.actors import POLICY
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Launch
from workers.repair import zones
from workers.repair.run import Run
from workers.repair.steps.launch import token_for


def test_a_replacement_is_launched_where_there_is_capacity_and_the_next_one_goes_there_at_once(db, drives):
    drive = drives("solo=template:4")
    machine = drive.machine("solo")
    mate = next((m for m in drive.fleet.pool("solo")[1:] if m.zone == machine.zone), None)
    drive.inject(machine, "NO_CAPACITY")
    drive.inject(machine, "XID_79", 0)
    repair = drive.repaired(machine, seconds=3)
    assert repair.outcome == "REPLACED" and repair.replacement.zone != machine.zone
    made = list(repair.calls.filter(operation="RunInstances").order_by("pk"))
    assert [c.outcome for c in made] == ["InsufficientInstanceCapacity", "ok"]
    assert [c.token for c in made] == [token_for(repair.pk, 1), token_for(repair.pk, 2)]
    told = dict(Launch.objects.values_list("outcome", "zone"))
    assert told == {"NO_CAPACITY": machine.zone, "SERVED": repair.replacement.zone}
    drive.sound()
    assert mate is not None, "four machines in three zones"
    with transaction.atomic():
        row = lifecycle.open_repair(
            instance=drive.row(mate), action="REPLACE", actor=POLICY, values={}, not_before=clock.now()
        )
    place, note = zones.first(Run(row))
    assert place["zone"] != machine.zone and "is in trouble" in note, "it is not tried first"

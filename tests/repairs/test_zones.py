"""A zone without capacity is left for another of the pool's zones, each launch by a token of its own."""

from __future__ import annotations

from django.db import transaction

from healthboard import clock
from healthboard.people.actors import POLICY
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Launch
from healthboard.sandbox.launch import subnet_of
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


def test_a_template_that_names_its_network_interfaces_gets_the_subnet_in_each_of_them(db, drives):
    """EC2 takes no subnet beside them: what runs with EFA could not be replaced at all."""
    drive = drives("solo=template:4")
    world, machine = drive.fleet.world, drive.machine("solo")
    cards = [
        {"NetworkCardIndex": n, "DeviceIndex": min(n, 1), "InterfaceType": "efa", "Groups": ["sg-1"]} for n in (0, 1)
    ]
    for data in world.template_named("solo").versions.values():
        data.pop("SecurityGroupIds")
        data["NetworkInterfaces"] = cards
    drive.inject(machine, "NO_CAPACITY")
    drive.inject(machine, "XID_79", 0)
    drive.until(lambda: (r := drive.repair(machine)) and r.replacement_id, 200)
    drive.working = False
    repair = drive.repair(machine)
    made = list(repair.calls.filter(operation="RunInstances").order_by("pk"))
    assert [c.outcome for c in made] == ["InsufficientInstanceCapacity", "ok"]
    new = world.instances[repair.replacement.instance_id]
    for call, zone in zip(made, (machine.zone, new.zone), strict=True):
        assert "SubnetId" not in call.request and "Placement" not in call.request
        assert call.request["NetworkInterfaces"] == [{**card, "SubnetId": subnet_of(world, zone)} for card in cards]

    def at_home(*interfaces: dict) -> dict:
        for data in world.template_named("solo").versions.values():
            data["NetworkInterfaces"] = list(interfaces)
        run = Run(drive.repair(machine))
        tied = zones._others(run, zones.home(run)) == []
        assert tied == any(one.get("SubnetId") or one.get("NetworkInterfaceId") for one in interfaces)
        return zones.home(run)["request"]

    own, theirs = {"SubnetId": subnet_of(world, machine.zone)}, {"SubnetId": "subnet-of-theirs"}
    assert at_home() == own
    assert at_home({"DeviceIndex": 0, **theirs}, {"DeviceIndex": 1, "NetworkInterfaceId": "eni-1"}) == {}
    half = at_home({"DeviceIndex": 0}, {"DeviceIndex": 1, **theirs})
    assert half == {"NetworkInterfaces": [{"DeviceIndex": 0, **own}, {"DeviceIndex": 1, **theirs}]}

"""What stands against a replacement is known before anything is drained; without one the old machine is kept."""

from __future__ import annotations

from collections import Counter

import pytest

from healthboard import clock
from healthboard.cases import second as cases_second
from healthboard.fleet.models import Gpu
from healthboard.refusals import NotAllowed
from healthboard.repairs import second
from healthboard.repairs.lifecycle import answer
from healthboard.sandbox.activities import begin
from healthboard.sandbox.entities import Reservation
from tests import two
from tests.repairs.driver import person
from workers.repair import origin, zones
from workers.repair.look import AwsTrouble
from workers.repair.results import Ask
from workers.repair.run import Run
from workers.repair.steps import launch, replace

DRAIN = "UpdateContainerInstancesState"


@pytest.fixture
def solo(db, drives):
    return drives("solo=template:3")


@pytest.fixture
def train(db, drives):
    return drives("train=group:3")


def at_maximum(drive, machine):
    drive.group().maximum = drive.group().desired


@pytest.mark.parametrize("hinder", [at_maximum])
def test_without_room_in_the_group_nothing_is_drained(train, hinder):
    """What else stands against it is tried one by one in test_proofs."""
    machine = train.machine("train")
    hinder(train, machine)
    train.inject(machine, "XID_79", 0)
    repair = train.repaired(machine)
    assert (repair.state, repair.outcome) == ("FAILED", "NO_ROOM")
    assert not train.calls()
    case = train.case(machine)
    assert case.state == "WAITING" and case.why_waiting == repair.outcome_why and repair.outcome_why
    train.steps(10, 2)
    assert train.repair(machine).pk == repair.pk  # not tried again by itself
    train.sound()


def test_at_the_groups_minimum_no_member_steps_aside_for_a_reboot(train):
    machine = train.machine("train")
    train.group().minimum = train.group().desired
    train.inject(machine, "XID_95", 0)
    repair = train.repaired(machine)
    assert (repair.state, repair.outcome) == ("FAILED", "NO_ROOM")
    assert not train.calls()


def test_with_termination_protection_nothing_is_drained(solo):
    machine = solo.machine("solo")
    machine.protected = True
    solo.inject(machine, "XID_79", 0)
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome) == ("FAILED", "NO_ROOM")
    assert "protection" in repair.outcome_why and not solo.calls()


def test_a_full_reservation_goes_straight_to_a_person(solo):
    machine = solo.machine("solo")
    reserve(solo, machine, free=0)
    solo.inject(machine, "XID_79", 0)
    repair = solo.repaired(machine)
    assert (repair.state, repair.outcome) == ("FAILED", "NO_ROOM")
    assert "full" in repair.outcome_why and not solo.calls()


def reserve(drive, machine, free):
    world = drive.fleet.world
    with drive.fleet.engine.sandbox.lock:
        world.add(
            Reservation(
                id="cr-0123456789abcdef0", type=machine.type, zone=machine.zone, total=1 + free, created_at=world.now()
            )
        )
        machine.reservation = "cr-0123456789abcdef0"


def no_capacity(drive, machine):
    for zone in drive.fleet.world.zones:
        for other in drive.fleet.pool(machine.pool):
            if other.zone == zone:
                drive.inject(other, "NO_CAPACITY")


def test_without_capacity_the_drained_machine_is_kept_and_a_person_is_asked(solo):
    machine = solo.machine("solo")
    no_capacity(solo, machine)
    solo.inject(machine, "XID_79", 0)
    repair = solo.asking(machine, within=600)
    assert repair.step == "launch" and "capacity" in repair.why_waiting
    assert solo.fleet.container(machine).status == "DRAINING" and machine.state == "running"
    assert solo.calls() == {DRAIN: 1}
    assert {c["key"] for c in repair.facts["choices"]} == {"wait_longer", "terminate_first", "undo"}
    told = Counter(repair.launches.values_list("outcome", flat=True))
    assert told == {"NO_CAPACITY": 3, "FAILED": 1}, "tried in each zone of the pool, and counted as one failed launch"
    solo.sound()


def test_only_a_named_approver_may_have_it_terminated_first(solo):
    machine = solo.machine("solo")
    no_capacity(solo, machine)
    solo.inject(machine, "XID_79", 0)
    repair = solo.asking(machine, within=600)
    asked = second.ask_answer(repair.pk, actor=person("operator"), choice="terminate_first", reason="it must")
    refused = [person("operator"), person("operator", "other"), person("approver", recent=False), person("admin")]
    for actor in refused:
        with pytest.raises(NotAllowed):
            cases_second.confirm(asked.pk, actor=actor)
    with pytest.raises(NotAllowed):
        answer(repair.pk, actor=person("approver"), choice="terminate_first", reason="alone")
    solo.mend(machine, "NO_CAPACITY")  # what it gives back can be had again
    cases_second.confirm(asked.pk, actor=person("approver"))
    repair = solo.repaired(machine, within=600)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED"), solo.said()
    assert solo.calls(machine)["TerminateInstances"] == 1
    assert solo.calls()["RunInstances"] == 1
    solo.sound()


def test_undo_after_no_capacity_brings_the_machine_back(solo):
    machine = solo.machine("solo")
    no_capacity(solo, machine)
    solo.inject(machine, "XID_79", 0)
    repair = solo.asking(machine, within=600)
    answer(repair.pk, actor=person("operator"), choice="undo", reason="keep it")
    repair = solo.repaired(machine)
    assert repair.state == "CANCELLED"
    assert solo.fleet.container(machine).status == "ACTIVE"
    assert solo.calls() == {DRAIN: 2}
    solo.sound()


def test_a_group_without_capacity_keeps_the_machine_and_asks(train):
    machine = train.machine("train")
    no_capacity(train, machine)
    train.inject(machine, "XID_79", 0)
    repair = train.asking(machine, within=600)
    assert repair.step == "replacement" and "capacity" in repair.why_waiting
    assert machine.state == "running" and train.group().members[machine.id]["state"] == "Standby"
    assert "zones in trouble" in repair.why_waiting, "the group chooses its zones itself, and is told"
    assert "FAILED" in repair.launches.values_list("outcome", flat=True)
    assert {c["key"] for c in repair.facts["choices"]} == {"wait_longer", "terminate_first", "undo"}
    train.sound()


def test_a_group_without_capacity_may_be_told_to_terminate_first(train):
    machine = train.machine("train")
    no_capacity(train, machine)
    train.inject(machine, "XID_79", 0)
    repair = train.asking(machine, within=600)
    two.answer(repair.pk, actor=person("approver"), choice="terminate_first", reason="it must")
    train.until(lambda: machine.state == "terminated", 200)
    for other in list(train.fleet.world.instances.values()):
        train.mend(other, "NO_CAPACITY")
    repair = train.repaired(machine, within=600)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED"), train.said()
    assert train.group().desired == 3
    train.sound()


def test_a_replacement_with_the_same_fault_asks_and_ends_nothing(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "replacement")
    new = solo.repair(machine).replacement.instance_id
    solo.until(lambda: solo.fleet.world.container_of.get(new), 60)
    solo.inject(solo.fleet.world.instances[new], "XID_79", 0)
    repair = solo.asking(machine)
    assert "broken too" in repair.why_waiting
    assert machine.state == "running"
    answer(repair.pk, actor=person("operator"), choice="undo", reason="no good")
    repair = solo.repaired(machine)
    assert repair.state == "CANCELLED"
    assert solo.fleet.world.instances[new].state in ("shutting-down", "terminated")
    assert solo.fleet.container(machine).status == "ACTIVE"
    solo.sound()


def test_a_replacement_of_another_type_asks(solo):
    machine = solo.machine("solo")
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "replacement")
    new = solo.repair(machine).replacement.instance_id
    solo.fleet.world.instances[new].type = "g6e.12xlarge"
    repair = solo.asking(machine)
    assert "g6e.12xlarge" in repair.why_waiting and machine.state == "running"
    assert repair.launches.get().outcome == "FAILED", "one of the launches that put a pool into protected mode"


def test_a_replacement_on_condemned_hardware_asks(solo):
    """Known by its serial alone, and asked about on the replacement too, whose gate keeps its agent from starting."""
    machine = solo.machine("solo")
    solo.policy(mode_ambiguous="auto")
    solo.inject(machine, "XID_79", 0)
    solo.at_step(machine, "replacement")
    new = solo.repair(machine).replacement.instance_id
    card = solo.fleet.world.instances[new].gpus[1]
    Gpu.objects.create(
        account=solo.account, region=solo.row(machine).region, uuid="GPU-00000000-dead-4000-8000-000000000001",
        serial=card["serial"], condemned_at=clock.now(), condemned_why="XID_79, repair 1",
    )  # fmt: skip
    repair = solo.asking(machine)
    assert f"condemned hardware: {card['uuid']} (XID_79, repair 1)" in repair.why_waiting
    assert machine.state == "running"
    case = solo.until(lambda: solo.case(new), 30)
    assert (case.code, case.gpu, case.mode, case.state) == ("GPU_CONDEMNED_RETURNED", card["uuid"], "ask", "WAITING")


def test_a_group_that_launches_for_another_reason_gives_each_repair_its_own(train):
    """Two repairs of one group never share a launch."""
    machine = train.machine("train")
    train.inject(machine, "XID_79", 0)
    train.at_step(machine, "replacement")
    with train.fleet.engine.sandbox.lock:
        train.group().desired += 1  # somebody scales out meanwhile
    repair = train.repaired(machine)
    assert repair.outcome == "REPLACED"
    assert train.group().desired == 4
    train.sound()


def test_what_a_group_launches_into_its_warm_pool_is_no_replacement(train):
    """Nor is it taken from there by its name: it is none of the group's members, and it is stopped."""
    train.one_pass()
    machine, warm = train.machine("train"), "i-0123456789abcdef0"
    train.inject(machine, "XID_79", 0)
    train.at_step(machine, "standby")
    train.until(lambda: train.group().members[machine.id]["state"] == "EnteringStandby", 60, 1.0)
    with train.fleet.engine.sandbox.lock:  # before it launches the replacement
        text = f"Launching a new EC2 instance into warm pool: {warm}"
        begin(train.fleet.world, train.group(), "launch", warm, text, "its warm pool was one short")
    repair = train.until(lambda: (r := train.repair(machine)).replacement and r, 100)
    assert repair.replacement.instance_id in train.group().members


def test_a_groups_launch_is_told_by_aws_own_clock(train):
    """AWS's is a minute behind ours: only what its activities say is compared with one another."""
    train.one_pass()
    machine, mate, earlier = train.machine("train"), train.machine("train", 1), "i-0123456789abcdef0"
    train.inject(machine, "XID_79", 0)
    train.at_step(machine, "standby")
    world, group, told = train.fleet.world, train.group(), set()

    def launches(instance: str) -> None:
        begin(world, group, "launch", instance, f"Launching a new EC2 instance: {instance}", "somebody scaled out")

    def behind() -> None:
        for activity in world.activities.values():
            if activity.id not in told:
                told.add(activity.id)
                activity.started_at -= 60

    train.hands.append(behind)
    with train.fleet.engine.sandbox.lock:
        launches(earlier)
        behind()
    train.until(lambda: group.members[machine.id]["state"] == "EnteringStandby", 60, 1.0)
    with train.fleet.engine.sandbox.lock:
        launches(mate.id)
        behind()
    repair = train.until(lambda: (r := train.repair(machine)).replacement and r, 100)
    assert repair.replacement.instance_id in {*group.members} - {machine.id, mate.id, train.machine("train", 2).id}


@pytest.mark.parametrize(
    ("description", "named"),
    [
        ("Launching a new EC2 instance: i-0a1", "i-0a1"),
        ("Launching a new EC2 instance from warm pool: i-0a1", "i-0a1"),
        ("Launching a new EC2 instance: i-0a1.  Status Reason: Instance became unhealthy", "i-0a1"),
        ("Launching a new EC2 instance", None),
        ("Launching a new EC2 instance.  Status Reason: We currently do not have sufficient capacity", None),
    ],
)
def test_what_a_group_says_of_a_launch_for_itself(description, named):
    launch = replace._LAUNCH.match(description)
    assert launch and launch["id"] == named
    assert not replace._LAUNCH.match(description.replace("instance", "instance into warm pool"))


def test_what_is_ended_first_is_launched_where_it_was(solo):
    """EC2 tells of an ended machine neither subnet nor VPC: they are kept before anything is touched."""
    machine = solo.machine("solo")
    solo.policy(mode_hardware="ask", undo_s=1)
    solo.one_pass()
    reserve(solo, machine, free=0)
    solo.inject(machine, "XID_79", 0)
    case = solo.opened(machine)
    for by in (person("operator"), person("approver")):
        solo.decide(case, "override", by=by, action="REPLACE", reason="full", allow=("terminate_first",))
    solo.at_step(machine, "keep")
    solo.working = False
    for field, word in (("SubnetId", "subnet"), ("Tags", "tags")):
        solo.rules({"operation": "DescribeInstances", "do": "fields", "fields": [field], "times": 1})
        with pytest.raises(AwsTrouble, match=f"does not tell its .*{word}"):
            origin.kept(Run(solo.repair(machine)))
    solo.working = True
    solo.at_step(machine, "launch")
    solo.working = False
    run = Run(solo.repair(machine))
    assert run.look.gone and "SubnetId" not in run.look.ec2
    assert origin.unknown(run) is None and zones.home(run)["request"] == {"SubnetId": solo.fleet.subnet(machine.zone)}
    kept = run.facts.pop("launch_from")  # as in a repair of the release before
    found = launch.launch(run)
    assert isinstance(found, Ask) and "in which subnet" in found.why and [c["key"] for c in found.choices] == ["leave"]
    assert "RunInstances" not in solo.calls(), "nothing is started in the default VPC"
    assert kept["tags"]["Name"] == machine.name and kept["template"] == machine.template
    solo.working = True
    repair = solo.repaired(machine, within=600)
    assert (repair.state, repair.outcome) == ("SUCCEEDED", "REPLACED"), solo.said()
    made = repair.calls.get(operation="RunInstances")
    assert made.request["SubnetId"] == solo.fleet.subnet(machine.zone)
    assert {"Key": "Name", "Value": machine.name} in made.request["TagSpecifications"][0]["Tags"]
    solo.sound()

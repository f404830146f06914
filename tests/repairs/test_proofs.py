"""Each proof by itself: what stands against starting a replacement, and against counting on one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard.diagnosis.rules import gpu_readings
from healthboard.fleet.models import Gpu, Instance, Interval, Source
from healthboard.repairs import launches
from healthboard.repairs.models import Launch, Repair
from healthboard.sandbox.entities import Reservation
from healthboard.sandbox.ticks.groups import set_member
from tests import factories
from tests.cases import scene
from workers.repair.look import AwsTrouble
from workers.repair.results import Ask, Climb, Done, Wait
from workers.repair.run import Run
from workers.repair.serving import Problem, why_not_serving
from workers.repair.steps import prepare, reboot, undo
from workers.verify import check


def test_what_stands_against_a_replacement_in_a_group(db, drives):
    drive = drives("train=group:3")
    drive.one_pass()
    machine = drive.machine("train")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "room")
    drive.working = False
    group = drive.group()

    def said() -> str | None:
        return prepare._room_in_group(Run(drive.repair(machine)))

    assert said() is None
    for operation, word in (
        ("DescribeAutoScalingInstances", "whether it is a member"),
        ("DescribeAutoScalingGroups", "does not tell the group"),
    ):
        drive.rules({"operation": operation, "do": "empty", "times": 1})
        with pytest.raises(AwsTrouble, match=word):
            said()  # an empty list says nothing
    drive.rules({"operation": "DescribeAutoScalingInstances", "do": "fields", "times": 1})
    with pytest.raises(AwsTrouble, match="lacks what it must hold"):
        said()
    group.maximum, before = group.desired, group.maximum
    assert "at its maximum" in said()
    group.maximum = before
    group.suspended = ["Launch"]
    assert "suspended" in said()
    group.suspended = []
    refresh = {"InstanceRefreshId": "r-1", "AutoScalingGroupName": group.id, "StartTime": 0.0}
    for state in ("Pending", "InProgress", "Baking", "Cancelling", "RollbackInProgress"):
        group.refreshes = [{**refresh, "Status": state}]
        assert "instance refresh" in said(), state
    for state in ("Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"):
        group.refreshes = [{**refresh, "Status": state}]
        assert said() is None, state
    group.refreshes = []
    set_member(group, machine.id, state="Standby")
    assert said() == "Somebody else put it into Standby"
    set_member(group, machine.id, state="InService")
    assert said() is None
    _failed_with(drive.row(machine), group.template, "3")
    group.template_version = "3"
    assert "gave no serving replacement" in said()
    group.template_version = "$Latest"
    assert "Version 3" in said()
    repair = drive.repair(machine)
    repair.automatic = False
    assert prepare._room_in_group(Run(repair)) is None, "a person who approves knows better"
    group.template_version = "2"
    assert said() is None, "what serves with it proves it"
    for version in ("$Latest", "2"):
        group.template_version = version
        drive.rules({"operation": "DescribeLaunchTemplateVersions", "do": "empty", "times": 1})
        with pytest.raises(AwsTrouble, match="tells nothing of the group's version"):
            said()
    group.template_version = "99"
    assert "launch template no longer exists" in said()
    group.template_version, code = "$Default", "InvalidLaunchTemplateId.NotFound"
    drive.rules({"operation": "DescribeLaunchTemplateVersions", "do": "error", "code": code, "times": 1})
    assert "launch template no longer exists" in said(), "a blocker in words, and no trouble with AWS that may pass"
    assert said() is None
    set_member(group, machine.id, state="Warmed:Stopped")  # a scale-in put it into the warm pool
    assert said() == "It is no longer a member of its Auto Scaling group", "that is a clear answer"


def _failed_with(old: Instance, template: str, version: str) -> Launch:
    new = scene.machine(old.pool, template_id=template, template_version=version, gone_at=factories.ago(600))
    return _launched(new, new, Launch.Outcome.FAILED, "FAILED")


def _launched(old: Instance, new: Instance, outcome: str, state: str) -> Launch:
    """Noted while the repair is open, as only its worker may; then it ends."""
    repair = factories.repair(old, replacement=new)
    launches.note(repair, outcome, zone="us-east-1a", why="it never registered")
    Repair.objects.filter(pk=repair.pk).update(state=state, closed_at=factories.ago(0))
    return Launch.objects.get(repair=repair)


@pytest.mark.django_db
def test_a_template_version_has_failed_until_something_serves_with_it(monkeypatch):
    old = scene.machine()
    failed = _failed_with(old, "lt-1", "7")
    said = launches.version_that_failed(old.pool, "lt-1", "7")
    assert f"repair {failed.repair_id}" in said and "Version 7" in said
    assert launches.version_that_failed(old.pool, "lt-1", "6") == "" == launches.version_that_failed(old.pool, "x", "7")
    mate = scene.machine(old.pool, template_id="lt-1", template_version="7", agent_connected=False)
    assert launches.version_that_failed(old.pool, "lt-1", "7"), "it does not serve"
    Instance.objects.filter(pk=mate.pk).update(agent_connected=True)
    assert launches.version_that_failed(old.pool, "lt-1", "7") == ""
    Instance.objects.filter(pk=mate.pk).update(gone_at=factories.ago(1))
    _launched(scene.machine(old.pool), mate, Launch.Outcome.SERVED, "SUCCEEDED")
    assert launches.version_that_failed(old.pool, "lt-1", "7") == "", "the last one served"


def test_a_replacement_that_is_not_as_the_old_machine_does_not_count(db, drives):
    drive = drives("solo=template:3")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.until(lambda: (r := drive.repair(machine)) and r.replacement_id, 200)
    drive.working = False
    repair = drive.repair(machine)
    new = drive.fleet.world.instances[repair.replacement.instance_id]

    def problem(**old: object):
        run = Run(drive.repair(machine))
        for name, value in old.items():
            setattr(run.instance, name, value)
        return why_not_serving(run, drive.row(new))

    drive.until(lambda: problem() is None, 200, 2)
    for change, word, final in (
        ({"market": "spot"}, "bought as spot", True),
        ({"type": "g6e.12xlarge"}, "it is a g6e.12xlarge", True),
        ({"state": "stopping"}, "it is stopping", True),
    ):
        before = {name: getattr(new, name) for name in change}
        for name, value in change.items():
            setattr(new, name, value)
        found = problem()
        assert word in found.why and found.final == final
        for name, value in before.items():
            setattr(new, name, value)
    drive.rules({"operation": "DescribeInstances", "do": "fields", "fields": ["InstanceType"], "times": 1})
    assert problem().why == "EC2 does not tell its type and place" and not problem()
    found = problem(placement_group="pg-1")
    assert "placement group pg-1" in found.why and found.final
    container = drive.fleet.container(new)
    container.gpus, all_of_them = container.gpus[1:], container.gpus
    assert problem().why == "7 of 8 GPUs registered"
    container.gpus = all_of_them
    container.status = "DRAINING"
    assert "ECS shows it as DRAINING" in problem().why
    container.status = "ACTIVE"
    assert problem() is None
    fabric = Interval.objects.filter(instance__instance_id=new.id, name="FABRIC", until=None)
    assert fabric.update(value="starting") == 8
    assert problem() == Problem("the fabric of its GPUs has not come up yet")
    fabric.update(value="ok")
    assert problem() is None
    Gpu.objects.filter(instance__instance_id=new.id).update(name="NVIDIA L40S")
    assert problem().why == "other GPUs: NVIDIA L40S" and problem().final


def test_a_reboot_waits_for_the_fabric_and_never_replaces_for_it(db, drives, monkeypatch):
    drive = drives("solo=template:2")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_62", 1)
    drive.until(lambda: (r := drive.repair(machine)) and r.step == "soak", 400)
    drive.working = False
    fabric = Interval.objects.filter(instance__instance_id=machine.id, name="FABRIC", until=None)

    def run() -> Run:
        return Run(drive.repair(machine))

    drive.fleet.container(machine).status = "ACTIVE"
    assert reboot.soak(run()) == Wait(5, "good; soaking") and check._mended(run()) is None
    assert fabric.update(value="starting") == 8
    assert reboot.soak(run()) == Wait(5, "the fabric of its GPUs comes up")
    assert "good_since" not in {k for k, v in run().facts.items() if v}, "the soak begins anew"
    assert check._mended(run()) == "the fabric of its GPUs has not come up yet"
    monkeypatch.setattr(gpu_readings, "LASTING", timedelta())
    late = run()
    assert late.reading.assessment.codes == ("FABRIC_UNHEALTHY",)
    assert reboot.soak(late) == Wait(5, "the fabric of its GPUs comes up")
    monkeypatch.setattr(late, "late", lambda *_: True)
    asked = reboot.soak(late)
    assert isinstance(asked, Ask) and "fabric manager" in asked.why
    fabric.update(value="unhealthy")
    assert isinstance(reboot.soak(run()), Climb), "a fault that the fabric reports is another matter"


def test_what_aws_does_not_tell_is_no_room_and_no_want_of_it(db, drives):
    drive = drives("solo=template:2")
    drive.one_pass()
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "room")
    drive.working = False

    def said() -> str:
        run = Run(drive.repair(machine))
        found = prepare.room(run)
        return getattr(found, "why", "") or getattr(found, "note", "")

    assert said() == "nothing forbids it"
    for how in ({"do": "empty"}, {"do": "fields", "fields": ["State"]}):
        drive.rules({"operation": "DescribeInstances", "times": 1, **how})
        with pytest.raises(AwsTrouble, match="DescribeInstances tells neither"):
            _ = Run(drive.repair(machine)).look
    drive.rules({"operation": "DescribeInstances", "do": "error", "code": "InvalidInstanceID.NotFound", "times": 1})
    assert Run(drive.repair(machine)).look.state == "", "that is an answer, though it proves nothing for a while"
    drive.rules(
        {"operation": "DescribeInstanceAttribute", "do": "fields", "fields": ["DisableApiTermination"], "times": 1}
    )
    with pytest.raises(AwsTrouble, match="protected"):
        said()
    drive.rules({"operation": "DescribeLaunchTemplateVersions", "do": "empty", "times": 1})
    with pytest.raises(AwsTrouble, match="tells nothing"):
        said()
    template = drive.fleet.world.template_named("solo")
    kept, template.versions = template.versions, {"9": template.versions["1"]}
    template.default, before = "9", template.default
    assert "no longer exists" in said()
    template.versions, template.default = kept, before
    machine.reservation = "cr-0123456789abcdef0"
    assert "no longer exists" in said()
    world = drive.fleet.world
    world.add(Reservation(id=machine.reservation, type=machine.type, zone=machine.zone, total=1, created_at=0.0))
    assert "is full" in said()
    drive.rules({"operation": "DescribeCapacityReservations", "do": "empty", "times": 1})
    with pytest.raises(AwsTrouble, match="tells nothing"):
        said()
    missing = {"operation": "DescribeCapacityReservations", "do": "fields", "fields": ["AvailableInstanceCount"]}
    drive.rules({**missing, "times": 1})
    with pytest.raises(AwsTrouble, match="how much of its reservation is free"):
        said()


def test_a_spot_instance_whose_request_persists_is_not_replaced(db, drives):
    """Its end would bring another one by itself, beside the replacement."""
    drive = drives("solo=template:2")
    machine = drive.machine("solo")
    machine.market, machine.spot = "spot", {"id": "sir-00c0ffee", "persistent": True, "cancelled": False}
    drive.one_pass()
    drive.inject(machine, "XID_79", 0)
    drive.at_step(machine, "room")
    drive.working = False
    requests = "DescribeSpotInstanceRequests"

    def said() -> str:
        found = prepare.room(Run(drive.repair(machine)))
        return getattr(found, "why", "") or getattr(found, "note", "")

    assert "request sir-00c0ffee is persistent" in said() and "Cancel the request" in said()
    for rule, word in (
        ({"operation": "DescribeInstances", "fields": ["SpotInstanceRequestId"]}, "does not tell its Spot request"),
        ({"operation": "DescribeLaunchTemplateVersions", "fields": ["LaunchTemplateData"]}, "what the version holds"),
        ({"operation": requests, "fields": ["Type"]}, "whether its request is persistent"),
        ({"operation": requests, "fields": ["State"]}, "whether its request is persistent"),
        ({"operation": requests, "do": "empty"}, "whether its request is persistent"),
        ({"operation": requests, "do": "error", "code": "RequestLimitExceeded"}, "RequestLimitExceeded"),
    ):
        drive.rules({"do": "fields", "times": 1, **rule})
        with pytest.raises(AwsTrouble, match=word):
            said()
    for code, word in (
        ("UnauthorizedOperation", "is not allowed"), ("InvalidSpotInstanceRequestID.NotFound", "does not know its Spot"),
    ):  # fmt: skip
        drive.rules({"operation": requests, "do": "error", "code": code, "times": 1})
        assert word in said()
    drive.fleet.ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=["sir-00c0ffee"])
    assert said() == "nothing forbids it", "a cancelled request starts no other"
    machine.spot = {**machine.spot, "persistent": False, "cancelled": False}
    assert said() == "nothing forbids it"
    template = drive.fleet.world.templates[machine.template]
    asked = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "persistent"}}
    data = template.versions[machine.template_version]
    template.versions = {**template.versions, machine.template_version: {**data, "InstanceMarketOptions": asked}}
    assert "makes persistent Spot requests" in said(), "its replacement's request would persist"
    drive.working = True
    repair = drive.repaired(machine)
    assert (repair.state, repair.outcome) == ("FAILED", "NO_ROOM"), drive.said()
    assert not drive.calls(machine.id)


def test_our_surplus_launch_is_not_ended_while_tasks_may_run_on_it(db, drives):
    drive = drives("solo=template:2")
    machine = drive.machine("solo")
    drive.inject(machine, "XID_79", 0)
    drive.until(lambda: (r := drive.repair(machine)) and r.replacement_id, 200)
    drive.working = False
    new = drive.repair(machine).replacement.instance_id
    drive.until(lambda: Instance.objects.get(instance_id=new).container_arn, 200, 3)
    rows, arn = Instance.objects.filter(instance_id=new), Instance.objects.get(instance_id=new).container_arn

    def waits(step, word: str) -> None:
        found = step(Run(drive.repair(machine)))
        assert isinstance(found, Wait) and word in found.why, found

    rows.update(container_arn="")  # as before the round that tells of it
    for step in (undo.undo_surplus, undo.undo_launch):
        waits(step, "has registered with ECS")
    rounds = Source.objects.filter(name="ecs")
    rounds.update(attempted_at=drive.repair(machine).opened_at)
    for step in (undo.undo_surplus, undo.undo_launch):
        waits(step, "shows with its next full round")
    rows.update(container_arn=arn)
    drive.fleet.container(drive.fleet.world.instances[new]).status = "DRAINING"
    drive.rules({"operation": "DescribeContainerInstances", "do": "fields", "fields": ["runningTasksCount"]})
    for step in (undo.undo_surplus, undo.undo_launch):
        waits(step, "? tasks still have to leave")
    drive.rules()
    rows.update(container_arn="")
    drive.collect()
    container = drive.fleet.container(drive.fleet.world.instances[new])
    drive.fleet.world.remove(container)
    rows.update(container_arn="")
    found = undo.undo_surplus(Run(drive.repair(machine)))
    assert isinstance(found, Done) and "not registered" in found.note
    assert drive.calls(new) == {"RunInstances": 1}

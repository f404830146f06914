from __future__ import annotations

import pytest

from tests.sandbox.conftest import Fleet, code_of
from tests.sandbox.test_ec2 import control

TRAIN = "train-asg"


def group(fleet: Fleet, name: str = TRAIN) -> dict:
    return fleet.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]


def states(fleet: Fleet, name: str = TRAIN) -> dict[str, str]:
    return {i["InstanceId"]: i["LifecycleState"] for i in group(fleet, name)["Instances"]}


def activities(fleet: Fleet, kind: str = "") -> list[dict]:
    from healthboard.sandbox.client import call

    return [a for a in call("status", home=fleet.home)["activities"] if kind in ("", a["kind"])]


def test_standby_without_decrement_brings_exactly_one_replacement_that_serves(fleet):
    one = fleet.pool("train")[0]
    answer = fleet.asg.enter_standby(
        AutoScalingGroupName=TRAIN, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=False
    )["Activities"][0]
    assert (
        answer["StatusCode"] == "InProgress" and one.id in answer["Description"] and "user request" in answer["Cause"]
    )
    fleet.until(lambda: states(fleet)[one.id] == "Standby", within=5)
    fleet.until(lambda: list(states(fleet).values()).count("InService") == 20, within=15)
    (launched,) = activities(fleet, "launch")
    assert launched["outcome"] == "ok" and "increasing the capacity from 19 to 20" in launched["cause"]
    fleet.until(lambda: launched["instance_id"] in fleet.world.container_of, within=20)
    container = fleet.container(launched["instance_id"])
    assert container.provider == "train" and len(container.gpus) == 8
    assert group(fleet)["DesiredCapacity"] == 20 and one.state == "running"
    newest = fleet.asg.describe_scaling_activities(AutoScalingGroupName=TRAIN)["Activities"][0]
    assert newest["Description"] == f"Launching a new EC2 instance: {launched['instance_id']}"


def test_detaching_from_standby_leaves_the_desired_capacity_and_nobody_owns_the_instance(fleet):
    one = fleet.pool("train")[0]
    fleet.asg.enter_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=False)
    fleet.advance(30)
    fleet.asg.detach_instances(AutoScalingGroupName=TRAIN, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=False)
    fleet.until(lambda: one.id not in states(fleet), within=5)
    fleet.advance(30)
    assert len(states(fleet)) == 20 and group(fleet)["DesiredCapacity"] == 20 and len(activities(fleet, "launch")) == 1
    assert "aws:autoscaling:groupName" not in one.tags and one.state == "running"
    assert fleet.asg.describe_auto_scaling_instances(InstanceIds=[one.id])["AutoScalingInstances"] == []


def test_standby_with_decrement_launches_nothing_and_exit_restores_the_desired_capacity(fleet):
    one = fleet.pool("train")[0]
    fleet.asg.enter_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=True)
    fleet.advance(20)
    assert group(fleet)["DesiredCapacity"] == 19 and not activities(fleet, "launch")
    fleet.asg.exit_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one.id])
    fleet.advance(5)
    assert group(fleet)["DesiredCapacity"] == 20 and states(fleet)[one.id] == "InService"
    assert [a["kind"] for a in activities(fleet)] == ["enter_standby", "exit_standby"]


def test_undo_raises_the_desired_capacity_and_the_surplus_goes_by_name(fleet):
    one = fleet.pool("train")[0]
    fleet.asg.enter_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=False)
    fleet.advance(10)
    fleet.asg.exit_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one.id])
    fleet.advance(5)
    assert group(fleet)["DesiredCapacity"] == 21
    extra = activities(fleet, "launch")[0]["instance_id"]
    answer = fleet.asg.terminate_instance_in_auto_scaling_group(InstanceId=extra, ShouldDecrementDesiredCapacity=True)
    assert "shrinking the capacity from 21 to 20" in answer["Activity"]["Cause"]
    fleet.advance(30)
    assert group(fleet)["DesiredCapacity"] == 20 and len(states(fleet)) == 20 and extra not in states(fleet)
    assert len(activities(fleet, "launch")) == 1 and fleet.world.instances[extra].state == "terminated"


def test_sizes_are_guarded(fleet):
    ids = [i.id for i in fleet.pool("infer")]

    def standby(some, decrement):
        return fleet.asg.enter_standby(
            AutoScalingGroupName="infer-asg", InstanceIds=some, ShouldDecrementDesiredCapacity=decrement
        )

    assert code_of(lambda: standby(ids[:4], True)) == "ValidationError"
    assert set(states(fleet, "infer-asg").values()) == {"InService"}
    standby(ids[:3], True)
    assert group(fleet, "infer-asg")["DesiredCapacity"] == 3
    terminate = fleet.asg.terminate_instance_in_auto_scaling_group
    assert code_of(lambda: terminate(InstanceId=ids[5], ShouldDecrementDesiredCapacity=True)) == "ValidationError"
    fleet.advance(5)
    fleet.asg.set_desired_capacity(AutoScalingGroupName="infer-asg", DesiredCapacity=9)
    out = lambda: fleet.asg.exit_standby(AutoScalingGroupName="infer-asg", InstanceIds=ids[:1])  # noqa: E731
    assert code_of(out) == "ValidationError"
    assert (
        code_of(lambda: fleet.asg.set_desired_capacity(AutoScalingGroupName="infer-asg", DesiredCapacity=10))
        == "ValidationError"
    )
    assert (
        code_of(lambda: fleet.asg.set_desired_capacity(AutoScalingGroupName="infer-asg", DesiredCapacity=2))
        == "ValidationError"
    )


def test_only_in_service_members_enter_standby_and_only_standby_ones_leave_it(fleet):
    one, stranger = fleet.pool("train")[0].id, fleet.pool("solo")[0].id

    def enter(id_):
        return fleet.asg.enter_standby(
            AutoScalingGroupName=TRAIN, InstanceIds=[id_], ShouldDecrementDesiredCapacity=False
        )

    assert code_of(lambda: fleet.asg.exit_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one])) == "ValidationError"
    assert code_of(lambda: enter(stranger)) == "ValidationError"
    enter(one)
    assert code_of(lambda: enter(one)) == "ValidationError"
    assert code_of(lambda: fleet.asg.describe_lifecycle_hooks(AutoScalingGroupName="moon")) == "ValidationError"


def test_attaching_raises_the_desired_capacity(fleet):
    one = fleet.pool("solo")[0]
    fleet.asg.attach_instances(AutoScalingGroupName=TRAIN, InstanceIds=[one.id])
    fleet.advance(5)
    assert group(fleet)["DesiredCapacity"] == 21 and states(fleet)[one.id] == "InService"
    assert fleet.container(one).provider is None
    assert (
        code_of(lambda: fleet.asg.attach_instances(AutoScalingGroupName=TRAIN, InstanceIds=[one.id]))
        == "ValidationError"
    )


@pytest.mark.parametrize("code", ["EC2_SYSTEM_IMPAIRED", "EC2_INSTANCE_IMPAIRED", "EC2_EVENT_INSTANCE_RETIREMENT"])
def test_a_group_replaces_an_impaired_member_by_itself_but_not_before_45_seconds(fleet, code):
    one = fleet.pool("train")[0]
    control(fleet, "inject", instances=[one.id], code=code)
    fleet.advance(44)
    assert one.state == "running" and not activities(fleet)
    fleet.advance(3)
    assert one.state != "running" and activities(fleet)[0]["kind"] == "terminate"
    assert "taken out of service" in activities(fleet)[0]["cause"]
    fleet.advance(40)
    assert one.id not in states(fleet) and list(states(fleet).values()) == ["InService"] * 20
    assert [a["kind"] for a in activities(fleet)] == ["terminate", "launch"]


def test_it_replaces_a_stopped_member_and_one_terminated_by_others(fleet):
    stopped, gone = fleet.pool("train")[:2]
    fleet.ec2.stop_instances(InstanceIds=[stopped.id])
    fleet.ec2.terminate_instances(InstanceIds=[gone.id])
    fleet.advance(90)
    assert list(states(fleet).values()) == ["InService"] * 20
    assert {stopped.id, gone.id}.isdisjoint(states(fleet)) and stopped.state == "terminated"
    assert len(activities(fleet, "launch")) == 2


def test_a_gpu_fault_is_no_business_of_the_group(fleet):
    control(fleet, "inject", instances=[fleet.pool("train")[0].id], code="XID_79")
    fleet.advance(120)
    assert not activities(fleet)


def test_with_replace_unhealthy_suspended_it_replaces_nothing(fleet):
    one = fleet.pool("train")[0]
    fleet.asg.suspend_processes(AutoScalingGroupName=TRAIN, ScalingProcesses=["ReplaceUnhealthy"])
    assert [s["ProcessName"] for s in group(fleet)["SuspendedProcesses"]] == ["ReplaceUnhealthy"]
    control(fleet, "inject", instances=[one.id], code="EC2_SYSTEM_IMPAIRED")
    fleet.advance(120)
    assert one.state == "running" and not activities(fleet)
    row = next(i for i in group(fleet)["Instances"] if i["InstanceId"] == one.id)
    assert row["HealthStatus"] == "Unhealthy"
    fleet.asg.resume_processes(AutoScalingGroupName=TRAIN, ScalingProcesses=["ReplaceUnhealthy"])
    fleet.advance(2)
    assert one.state == "shutting-down"


def test_a_slow_reboot_is_replaced_in_service_and_left_alone_in_standby(fleet):
    serving, standing = fleet.pool("train")[:2]
    control(fleet, "inject", instances=[serving.id, standing.id], code="REBOOT_SLOW")
    fleet.asg.enter_standby(AutoScalingGroupName=TRAIN, InstanceIds=[standing.id], ShouldDecrementDesiredCapacity=True)
    fleet.advance(3)
    before = standing.boot_id
    for one in (serving, standing):
        fleet.ec2.reboot_instances(InstanceIds=[one.id])
    fleet.advance(60)
    assert serving.state != "running"
    status = fleet.ec2.describe_instance_status(InstanceIds=[standing.id])["InstanceStatuses"][0]
    assert status["InstanceStatus"]["Status"] == "impaired" and standing.boot_id == before
    fleet.advance(40)
    assert standing.state == "running" and standing.boot_id != before and states(fleet)[standing.id] == "Standby"
    assert fleet.container(standing).connected


def test_an_ordinary_reboot_in_service_is_not_replaced(fleet):
    one = fleet.pool("train")[0]
    fleet.ec2.reboot_instances(InstanceIds=[one.id])
    fleet.advance(90)
    assert one.state == "running" and not activities(fleet)


def test_without_capacity_in_a_zone_the_group_says_so_and_tries_another(fleet):
    one = fleet.pool("train")[0]
    control(fleet, "inject", instances=[one.id], code="NO_CAPACITY")
    fleet.asg.enter_standby(AutoScalingGroupName=TRAIN, InstanceIds=[one.id], ShouldDecrementDesiredCapacity=False)
    fleet.advance(40)
    first, *rest = activities(fleet, "launch")
    assert first["outcome"] == "InsufficientInstanceCapacity"
    assert [a["outcome"] for a in rest] == ["ok"] and fleet.world.instances[rest[0]["instance_id"]].zone != one.zone
    told = fleet.asg.describe_scaling_activities(AutoScalingGroupName=TRAIN)["Activities"]
    failed = next(a for a in told if a["StatusCode"] == "Failed")
    assert "do not have sufficient p5.48xlarge capacity" in failed["StatusMessage"]


def test_a_group_without_any_capacity_stays_short_and_keeps_trying(fleet):
    control(fleet, "inject", instances=[i.id for i in fleet.pool("infer")[:3]], code="NO_CAPACITY")
    one = fleet.pool("infer")[0]
    fleet.asg.enter_standby(
        AutoScalingGroupName="infer-asg", InstanceIds=[one.id], ShouldDecrementDesiredCapacity=False
    )
    fleet.advance(30)
    assert list(states(fleet, "infer-asg").values()).count("InService") == 5
    assert {a["outcome"] for a in activities(fleet, "launch")} == {"InsufficientInstanceCapacity"}
    control(fleet, "inject", instances=[i.id for i in fleet.pool("infer")[:3]], code="NO_CAPACITY", clear=True)
    fleet.advance(30)
    assert list(states(fleet, "infer-asg").values()).count("InService") == 6


def test_batch_has_a_group_and_a_cluster_of_its_own(calm):
    groups = calm.asg.describe_auto_scaling_groups()["AutoScalingGroups"]
    batch = next(g for g in groups if any(t["Key"] == "AWSBatchServiceTag" for t in g["Tags"]))
    assert batch["AutoScalingGroupName"].startswith("AWSBatch-") and len(batch["Instances"]) == 2
    clusters = calm.ecs.list_clusters()["clusterArns"]
    assert [c for c in clusters if "/AWSBatch-" in c]


def test_an_instance_refresh_is_shown_until_it_is_cancelled(fleet):
    def running():
        rows = fleet.asg.describe_instance_refreshes(AutoScalingGroupName=TRAIN)["InstanceRefreshes"]
        return [r["Status"] for r in rows]

    assert running() == []
    fleet.asg.start_instance_refresh(AutoScalingGroupName=TRAIN)
    assert running() == ["InProgress"]
    assert code_of(lambda: fleet.asg.start_instance_refresh(AutoScalingGroupName=TRAIN)) == "InstanceRefreshInProgress"
    fleet.asg.cancel_instance_refresh(AutoScalingGroupName=TRAIN)
    assert running() == ["Cancelled"]

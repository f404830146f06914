"""What a hostile AWS can do, each kind by itself, and a script that a seed draws."""

from __future__ import annotations

import io

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from django.core.management import call_command
from django.core.management.base import CommandError

from healthboard.sandbox import control, hostile
from healthboard.sandbox.interfere import LAUNCHES
from healthboard.sandbox.others import HANDS, meddle
from tests.sandbox.conftest import Fleet, code_of

POOLS = {"pools": "train=group:3,solo=template:3"}


@pytest.fixture
def fleet(tmp_path):
    from healthboard.sandbox.config import parse_pools

    made = Fleet(tmp_path, pools=parse_pools(POOLS["pools"]))
    yield made
    made.stop()


def rule(fleet: Fleet, **one) -> None:
    fleet.engine.sandbox.set_rules([{"times": 1, **one}])


def run_one(fleet: Fleet, token: str = "t") -> str:
    made = fleet.ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        LaunchTemplate={"LaunchTemplateName": "solo"},
        SubnetId=fleet.subnet(),
        ClientToken=token,
    )
    return made["Instances"][0]["InstanceId"]


def test_half_of_a_change_fails_with_http_200_and_is_not_done(fleet):
    one, two = fleet.pool("solo")[:2]
    refs = [fleet.container(i).id for i in (one, two)]
    rule(fleet, operation="UpdateContainerInstancesState", do="half")
    answer = fleet.ecs.update_container_instances_state(cluster="gpu", containerInstances=refs, status="DRAINING")
    assert [c["ec2InstanceId"] for c in answer["containerInstances"]] == [one.id] and len(answer["failures"]) == 1
    assert (fleet.container(one).status, fleet.container(two).status) == ("DRAINING", "ACTIVE")
    rule(fleet, do="half")
    assert fleet.drain(two)["failures"] and fleet.container(two).status == "ACTIVE", "of one, that one"
    assert fleet.engine.sandbox.store.calls()[-1][-1] == "ServerException"


def test_optional_fields_are_missing_where_a_rule_names_them(fleet):
    one = fleet.pool("solo")[0]
    rule(fleet, operation="DescribeContainerInstances", do="fields", fields=["agentConnected", "runningTasksCount"])
    ask = {"cluster": "gpu", "containerInstances": [fleet.container(one).id]}
    row = fleet.ecs.describe_container_instances(**ask)["containerInstances"][0]
    assert "agentConnected" not in row and "runningTasksCount" not in row and row["ec2InstanceId"] == one.id
    assert "agentConnected" in fleet.ecs.describe_container_instances(**ask)["containerInstances"][0]


def test_after_a_launch_reading_lags_and_the_same_token_still_knows_it(fleet):
    rule(fleet, operation="RunInstances", do="lag", lag_s=60)
    made = run_one(fleet)
    assert code_of(lambda: fleet.ec2.describe_instances(InstanceIds=[made])) == "InvalidInstanceID.NotFound"
    by_token = [{"Name": "client-token", "Values": ["t"]}]
    assert fleet.ec2.describe_instances(Filters=by_token)["Reservations"] == []
    assert run_one(fleet) == made
    fleet.advance(7)
    assert fleet.ec2.describe_instances(InstanceIds=[made])["Reservations"]


def test_after_a_change_reading_shows_the_old_state_for_a_while_and_nothing_of_it_is_written(fleet):
    one = fleet.pool("train")[0]
    rule(fleet, operation="EnterStandby", do="lag", lag_s=100)
    fleet.asg.enter_standby(AutoScalingGroupName="train-asg", InstanceIds=[one.id], ShouldDecrementDesiredCapacity=True)

    def shown():
        member = fleet.asg.describe_auto_scaling_instances(InstanceIds=[one.id])["AutoScalingInstances"][0]
        group = fleet.asg.describe_auto_scaling_groups(AutoScalingGroupNames=["train-asg"])["AutoScalingGroups"][0]
        return member["LifecycleState"], group["DesiredCapacity"]

    assert shown() == ("InService", 3)
    fleet.advance(5)
    assert shown() == ("InService", 3) and fleet.world.groups["train-asg"].members[one.id]["state"] == "Standby"
    fleet.advance(6)
    assert shown() == ("Standby", 2)


@pytest.mark.parametrize("kind", LAUNCHES)
def test_a_launch_comes_up_wrong(fleet, kind):
    old = fleet.pool("solo")[0]
    hardware = {card["uuid"] for card in old.gpus}
    control.handle(
        fleet.engine.sandbox, "", "inject", {"instances": [fleet.pool("solo")[1].id], "code": "ROW_REMAP_FAILURE"}
    )
    fleet.ec2.terminate_instances(InstanceIds=[old.id])
    fleet.advance(20)
    rule(fleet, do=kind, pool="solo")
    first = fleet.world.instances[run_one(fleet)]
    shown = fleet.ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [first.id]}])["Reservations"]
    fleet.advance(30)
    wrong = {
        "never_registers": first.id not in fleet.world.container_of,
        "same_fault": [f["code"] for f in first.faults] == ["ROW_REMAP_FAILURE"],
        "other_type": first.type != old.type,
        "unseen": not shown,
        "condemned": {card["uuid"] for card in first.gpus} == hardware,
    }
    assert [name for name, so in wrong.items() if so] == [kind] and first.state == "running"
    next_one = fleet.world.instances[run_one(fleet, "u")]
    assert next_one.type == old.type and not next_one.faults, "once was enough"


def test_a_groups_launch_that_ec2_does_not_show_yet_is_known_to_the_group(fleet):
    rule(fleet, do="unseen", pool="train", lag_s=200)
    fleet.world.groups["train-asg"].desired += 1
    fleet.advance(1)
    group = fleet.asg.describe_auto_scaling_groups(AutoScalingGroupNames=["train-asg"])["AutoScalingGroups"][0]
    new = next(i["InstanceId"] for i in group["Instances"] if i["LifecycleState"] == "Pending")
    assert code_of(lambda: fleet.ec2.describe_instances(InstanceIds=[new])) == "InvalidInstanceID.NotFound"
    fleet.advance(21)
    assert fleet.ec2.describe_instances(InstanceIds=[new])["Reservations"]


@pytest.mark.parametrize("hand", sorted(HANDS))
def test_others_take_a_hand(fleet, hand):
    member, group = fleet.pool("train")[0], fleet.world.groups["train-asg"]
    if hand == "person_ends_standby":
        name = {"AutoScalingGroupName": group.id, "InstanceIds": [member.id]}
        fleet.asg.enter_standby(**name, ShouldDecrementDesiredCapacity=True)
        fleet.advance(2)
    if hand == "person_reactivates":
        fleet.drain(member)
    if hand == "group_scales_it_in":
        fleet.asg.update_auto_scaling_group(AutoScalingGroupName=group.id, MinSize=0)
    assert meddle(fleet.world, member.id, hand)
    fleet.advance(20)
    there = group.members.get(member.id, {}).get("state", "")
    container = fleet.world.container_of.get(member.id)
    if hand in ("person_ends_standby", "person_reactivates"):
        assert there == "InService" and container.status == "ACTIVE"
    elif hand == "ecs_deregisters":
        assert container.inactive_at is not None and member.state == "running"
    elif hand == "person_detaches":
        assert there == "" and member.state == "running"
    else:
        assert member.state in ("terminated", "stopped", "stopping", "shutting-down")
    assert group.desired == (2 if hand == "group_scales_it_in" else 3)
    assert not meddle(fleet.world, "i-00000000", hand)


def storm(fleet: Fleet, seed: str) -> tuple[dict[str, int], list[str]]:
    """The same calls under a seed: what was done to them, and what came back."""
    hostile.turn(fleet.engine.sandbox, seed)
    told = []
    for number in range(40):
        one = fleet.pool("solo")[0]
        for call in (
            lambda n=number: run_one(fleet, f"{seed}{n}"),
            lambda one=one: fleet.drain(one),
            lambda: fleet.asg.describe_auto_scaling_groups(),
        ):
            try:
                call()
                told.append("ok")
            except ClientError as refused:
                told.append(refused.response["Error"]["Code"])
            except BotoCoreError as lost:
                told.append(type(lost).__name__)
    before = hostile.turn(fleet.engine.sandbox, None)
    return dict(before.did), told


def test_a_seed_draws_the_same_script_every_time_and_another_seed_another(tmp_path):
    from healthboard.sandbox.config import parse_pools

    def once(name: str, seed: str):
        fleet = Fleet(tmp_path / name, pools=parse_pools(POOLS["pools"]))
        try:
            return storm(fleet, seed)
        finally:
            fleet.stop()

    (did, told), again, other = once("a", "7"), once("b", "7"), once("c", "8")
    assert (did, told) == again and told != other[1]
    assert {"throttle", "drop_before", "drop_after", "error_after", "no_capacity", "half", "lag"} <= set(did), did
    assert set(did) & set(LAUNCHES)
    assert {"InsufficientInstanceCapacity", "ConnectionClosedError"} <= set(told)


def test_the_command_turns_it_on_and_off_and_a_restart_goes_on(fleet, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(fleet.home))

    def said(*words: str) -> str:
        out = io.StringIO()
        call_command("sandbox", *words, stdout=out)
        return out.getvalue()

    assert "by seed 42" in said("hostile", "42")
    assert fleet.engine.sandbox.store.setting(hostile.SETTING) == "42"
    fleet.engine.sandbox.hostile = None
    hostile.resume(fleet.engine.sandbox)
    assert fleet.engine.sandbox.hostile.seed == "42"
    with pytest.raises(CommandError, match="seed"):
        said("hostile", "no such; seed")
    assert "honest again" in said("hostile", "off") and fleet.engine.sandbox.hostile is None
    assert fleet.world.shortages == {}

"""The control commands' contract."""

from __future__ import annotations

import io
import json
import urllib.request
from datetime import datetime

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from healthboard.sandbox.control import LOST_QUEUE
from tests.sandbox.conftest import Fleet


@pytest.fixture
def home(fleet: Fleet, monkeypatch) -> Fleet:
    monkeypatch.setenv("HEALTHBOARD_HOME", str(fleet.home))
    return fleet


def run(*args, **options) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out, **options)
    return out.getvalue()


def test_status_json_has_exactly_what_the_contract_names(home):
    one, member = home.pool("solo")[0], home.pool("train")[0]
    home.ec2.describe_instances()
    home.drain(one)
    home.asg.enter_standby(
        AutoScalingGroupName="train-asg", InstanceIds=[member.id], ShouldDecrementDesiredCapacity=False
    )
    made = home.ec2.run_instances(
        MinCount=1, MaxCount=1, LaunchTemplate={"LaunchTemplateName": "solo"}, SubnetId=home.subnet(), ClientToken="t"
    )
    with pytest.raises(Exception):  # noqa: B017 - whatever botocore makes of it
        home.ec2.terminate_instances(InstanceIds=["i-00000000"])
    home.advance(60)
    status = json.loads(run("sandbox", "status", "--json"))
    assert status["endpoint"] == home.url
    calls = [(c["service"], c["operation"], c["target"], c["outcome"]) for c in status["calls"]]
    assert calls == [
        ("ec2", "DescribeInstances", "", "ok"),
        ("ecs", "UpdateContainerInstancesState", one.id, "ok"),
        ("autoscaling", "EnterStandby", member.id, "ok"),
        ("ec2", "RunInstances", made["Instances"][0]["InstanceId"], "ok"),
        ("ec2", "TerminateInstances", "i-00000000", "InvalidInstanceID.NotFound"),
    ]
    assert all(datetime.fromisoformat(c["at"]).tzinfo for c in status["calls"])
    assert [(a["group"], a["kind"], a["outcome"]) for a in status["activities"]] == [
        ("train-asg", "enter_standby", "ok"),
        ("train-asg", "launch", "ok"),
    ]
    train = next(g for g in status["groups"] if g["pool"] == "train")
    assert (train["group"], train["desired"], train["in_service"], train["standby"]) == ("train-asg", 20, 20, 1)
    row = next(i for i in status["instances"] if i["instance_id"] == one.id)
    assert {"state", "pool", "zone", "status", "agent_connected", "tasks", "standalone_tasks"} <= set(row)
    with urllib.request.urlopen(f"{home.url}/_sandbox/fleet") as answer:  # what is asked often goes without the calls
        assert json.load(answer) == {name: status[name] for name in ("activities", "groups", "instances")}
    assert (row["state"], row["pool"], row["status"], row["tasks"]) == ("running", "solo", "DRAINING", 0)


def test_standalone_tasks_are_counted_apart_and_no_new_ones_come_to_a_dead_host(home):
    def row(instance) -> dict:
        with urllib.request.urlopen(f"{home.url}/_sandbox/fleet") as answer:
            return next(i for i in json.load(answer)["instances"] if i["instance_id"] == instance.id)

    home.advance(5)
    alone = next(t for t in home.world.tasks.values() if t.family == "preprocess" and t.last == "RUNNING")
    one = home.world.instances[home.world.containers[alone.container].instance]
    free = next(i for i in home.pool("solo") if i.id != one.id)
    assert row(one)["standalone_tasks"] == 1 < row(one)["tasks"]
    assert row(free)["standalone_tasks"] == 0 < row(free)["tasks"]
    for machine in home.pool("solo"):
        if machine.id != one.id:
            call_command("inject", machine.id, "EC2_SYSTEM_IMPAIRED", stdout=io.StringIO())
    home.advance(400, step=5)  # the job ends, and the next ones have one machine of their pool to run on
    assert all(row(m)["standalone_tasks"] == 0 for m in home.pool("solo") if m.id != one.id)
    assert sum(t.family == "preprocess" for t in home.world.tasks.values()) > 1


def test_terminated_instances_stay_listed_for_ever(home):
    one = home.pool("solo")[0]
    home.ec2.terminate_instances(InstanceIds=[one.id])
    home.advance(800, step=5)
    row = next(i for i in json.loads(run("sandbox", "status", "--json"))["instances"] if i["instance_id"] == one.id)
    assert (row["state"], row["status"]) == ("terminated", "INACTIVE")
    assert one.id not in str(home.ec2.describe_instances()["Reservations"])


def test_inject_strikes_all_named_at_one_moment_and_clears_them_again(home):
    ids = [i.id for i in home.pool("train")[:3]]
    assert "XID_95" in run("inject", ",".join(ids), "XID_95", "--gpu", "2")
    marks = {home.world.instances[i].kernel[-1]["at"] for i in ids}
    assert len(marks) <= 3 and max(marks) - min(marks) < 0.1
    run("inject", ",".join(ids), "XID_95", "--clear")
    assert all(home.world.instances[i].faults == [] for i in ids)


@pytest.mark.parametrize(
    "args",
    [
        ("i-0", "XID_79"),
        ("{one}", "XID_999"),
        ("{one}", "XID_79", "--gpu", "8"),
        ("{one},i-0", "XID_79"),
        ("{one}",),
        (),
    ],
)
def test_a_bad_instance_or_code_ends_with_2_and_one_line(home, args):
    one = home.pool("solo")[0].id
    with pytest.raises(CommandError) as caught:
        run("inject", *[a.format(one=one) for a in args])
    assert caught.value.returncode == 2 and "\n" not in str(caught.value)
    assert all(not i.faults for i in home.world.instances.values())


def test_the_list_of_codes_needs_no_sandbox(monkeypatch, tmp_path):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    assert "EC2_SYSTEM_IMPAIRED" in run("inject", "--list")


@pytest.mark.parametrize("args", [("inject", "i-1", "XID_79"), ("sandbox", "status"), ("sandbox", "aws", "ok")])
def test_without_a_sandbox_or_in_aws_mode_the_commands_end_with_2(monkeypatch, tmp_path, args):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    for mode, word in (("sandbox", "not running"), ("aws", "aws mode")):
        monkeypatch.setenv("HEALTHBOARD_MODE", mode)
        with pytest.raises(CommandError) as caught:
            run(*args)
        assert caught.value.returncode == 2 and word in str(caught.value)


def test_aws_modes_are_switched_by_the_command(home):
    for mode in ("off", "throttle", "ok"):
        run("sandbox", "aws", mode)
        assert home.engine.sandbox.mode == mode
    assert "in service 20" in run("sandbox", "status")


def test_the_queue_is_lost_and_found_by_the_command_and_other_rules_stay(home):
    other = {"service": "ec2", "do": "delay", "delay_s": 0.0}
    home.engine.sandbox.set_rules([other])
    for mode, rules in (("lost", [LOST_QUEUE, other]), ("lost", [LOST_QUEUE, other]), ("ok", [other])):
        assert f"queue is {mode}" in run("sandbox", "queue", mode)
        assert home.engine.sandbox.rules == rules
    home.engine.sandbox.set_rules([])

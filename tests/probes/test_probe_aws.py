"""Each assumption is tried on the sandbox's AWS, and nothing is left of it whatever happens."""

from __future__ import annotations

import io
import json
import os
import signal

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from healthboard import aws
from healthboard.probes import run as running
from healthboard.probes.ground import PAUSE, Ground, NotOurs, left_over
from healthboard.probes.tries import PROBES
from healthboard.sandbox.calls import is_changing
from healthboard.sandbox.config import parse_pools
from healthboard.sandbox.status import status
from tests.sandbox.conftest import ACCOUNT, REGION, Fleet

HOLD = {"A1", "A2", "A3", "A4", "A5", "A6", "A7", "A9", "A10", "A12", "A13", "A16"}
UNTRIED = {"A11", "A14", "A15", "A17", "A18"}


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    monkeypatch.setattr(aws, "_clients", {})
    made = Fleet(tmp_path, pools=parse_pools("train=group:2"))
    yield made
    made.stop()


def ground_of(fleet: Fleet, sleep=None, **more) -> Ground:
    return Ground(
        account=ACCOUNT, region=REGION, folder=fleet.home / "probes", speed=10,
        sleep=sleep or (lambda seconds: fleet.advance(seconds, seconds)), **more,
    )  # fmt: skip


def changes(fleet: Fleet) -> list[dict]:
    return [c for c in status(fleet.engine.sandbox, fleet.url)["calls"] if is_changing(c["operation"])]


def nothing_left(fleet: Fleet, ground: Ground) -> bool:
    world = fleet.world
    ours = [i for i in world.instances.values() if i.tags.get("healthboard:probe") == ground.run]
    assert {i.state for i in ours} <= {"terminated"}
    assert ground.name not in {*world.groups, *world.clusters, *(t.name for t in world.templates.values())}
    assert not [d for d in world.definitions.values() if d.active]
    assert not [s for s in world.services.values() if s.cluster == ground.name]
    return not ground.note.exists()


def test_every_assumption_gets_its_answer_and_nothing_is_left(fleet, tmp_path):
    before = {i.id for i in fleet.world.instances.values()}
    ground = ground_of(fleet)
    answers, wrong = running.run(ground, [], tmp_path / "answers")
    told = {name: answer.said for name, answer in answers.items()}
    assert {name for name, answer in answers.items() if answer.holds} == HOLD, told
    assert {name for name, answer in answers.items() if answer.holds is None} == UNTRIED, told
    assert set(answers) == set(PROBES) == HOLD | UNTRIED | {"A8"} and wrong == []
    assert nothing_left(fleet, ground)
    touched = {one for call in changes(fleet) for one in call["target"].split(",") if one}
    assert touched and not touched & before, "nothing that was there before was touched"
    kept = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "answers").glob("*.json")}
    assert (
        set(kept) == set(PROBES) and kept["A6"]["answer"] == "holds" and kept["A14"]["answer"] == "could not be tried"
    )
    first, second = (call["answer"]["Instances"][0] for call in kept["A6"]["calls"])
    assert first["InstanceId"] == second["InstanceId"] and first["InstanceType"] == "t3.micro"
    assert PAUSE in {tag["Key"] for tag in first["Tags"]}, "healthboard itself keeps away"
    assert kept["A4"]["calls"][1]["error"]["code"] == "ValidationError"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_at_any_time_cleans_up_and_is_passed_on(fleet, tmp_path, number):
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            os.kill(os.getpid(), number)
        fleet.advance(seconds, seconds)

    ground = ground_of(fleet, sleep)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started without it
    try:
        with pytest.raises(KeyboardInterrupt):
            running.run(ground, [], tmp_path / "answers")
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(slept) > 3 and nothing_left(fleet, ground)


def test_what_it_did_not_make_it_refuses_to_touch(fleet):
    ground = ground_of(fleet)
    mine = fleet.pool("train")[0].id
    for service, operation, request in (
        ("ec2", "TerminateInstances", {"InstanceIds": [mine]}),
        ("autoscaling", "TerminateInstanceInAutoScalingGroup",
         {"InstanceId": mine, "ShouldDecrementDesiredCapacity": True}),
        ("autoscaling", "EnterStandby", {"AutoScalingGroupName": "train-asg", "InstanceIds": [mine]}),
        ("autoscaling", "UpdateAutoScalingGroup", {"AutoScalingGroupName": "train-asg", "MinSize": 0}),
        ("ecs", "DeleteCluster", {"cluster": "gpu"}),
        ("ec2", "RunInstances", {"LaunchTemplate": {"LaunchTemplateId": "lt-1"}, "MinCount": 1, "MaxCount": 1}),
        ("ec2", "DeleteLaunchTemplate", {"LaunchTemplateName": "train"}),
        ("ec2", "StopInstances", {}),
    ):  # fmt: skip
        with pytest.raises(NotOurs):
            ground.change(service, operation, **request)
    assert changes(fleet) == []


def said(*args, **options) -> str:
    out = io.StringIO()
    call_command("probe_aws", *args, stdout=out, **options)
    return out.getvalue()


def test_what_an_abrupt_end_left_is_cleaned_up_by_the_next_run(fleet, monkeypatch):
    ground = ground_of(fleet)
    ground.make()  # and then somebody pulls the plug
    assert left_over(ground.folder, ACCOUNT, REGION) == [ground.run] and left_over(ground.folder, ACCOUNT, "x") == []
    (ground.folder / "healthboard-probe-torn.json").write_text("{")
    monkeypatch.setattr(Ground.__init__, "__kwdefaults__", {**Ground.__init__.__kwdefaults__, "sleep": ground.sleep})
    assert f"cleaning up {ground.name}" in said("--clean")
    assert nothing_left(fleet, ground)


def test_the_command_tries_what_is_named_and_asks_before_it_starts_in_a_real_account(fleet, monkeypatch):
    sleep = ground_of(fleet).sleep
    monkeypatch.setattr(Ground.__init__, "__kwdefaults__", {**Ground.__init__.__kwdefaults__, "sleep": sleep})
    told = said("--only", "a6,A13")
    assert "A6   holds" in told and "A13  holds" in told and "A1 " not in told
    with pytest.raises(CommandError, match="no such assumption: A99"):
        said("--only", "A99")
    with pytest.raises(CommandError, match="--region is one of"):
        said("--region", "mars-1")
    with pytest.raises(CommandError, match="names no account"):
        said("--yes", "999999999999")
    before = len(changes(fleet))
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    monkeypatch.setenv("HEALTHBOARD_ACCOUNTS", ACCOUNT)
    monkeypatch.setenv("HEALTHBOARD_REGIONS", REGION)
    for words in ([], ["--yes", "yes"], ["--clean"]):
        with pytest.raises(CommandError, match=f"say --yes {ACCOUNT}"):
            said(*words)
    assert len(changes(fleet)) == before

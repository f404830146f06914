"""The sandbox as a process: it survives kill -9, stops on SIGTERM, and says in one line what is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from healthboard.sandbox.client import Unreachable, call
from healthboard.sandbox.config import REPO
from tests.sandbox.conftest import boto

PROGRAM = "import sys; from healthboard.sandbox.server import main; sys.exit(main())"


class Process:
    def __init__(self, home: Path, **env: str) -> None:
        self.home = home
        settings = {
            "HEALTHBOARD_HOME": str(home), "HEALTHBOARD_SANDBOX_SPEED": "100", "HEALTHBOARD_SANDBOX_SCRIPT": "off",
            "HEALTHBOARD_SANDBOX_NODES": "off", "PATH": os.environ["PATH"], **env,
        }  # fmt: skip
        (home / "run" / "sandbox.url").unlink(missing_ok=True)
        self.child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=REPO,
            env=settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> Process:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                call("health", home=self.home)
                self.url = (self.home / "run" / "sandbox.url").read_text().strip()
                return self
            except Unreachable:
                assert self.child.poll() is None, self.child.stderr.read()
                time.sleep(0.02)
        raise AssertionError("it did not start")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        self.child.communicate(timeout=10)
        return self.child.returncode


def test_kill_9_loses_neither_fleet_nor_calls_nor_tokens(tmp_path):
    process = Process(tmp_path).wait()
    template = {"LaunchTemplateName": "solo", "Version": "2"}
    solo = [{"Name": "tag:Name", "Values": ["solo-01"]}]
    mate = boto(process.url, "ec2").describe_instances(Filters=solo)["Reservations"][0]["Instances"][0]
    launch = {"MinCount": 1, "MaxCount": 1, "LaunchTemplate": template, "ClientToken": "intent"}
    launch["SubnetId"] = mate["SubnetId"]
    made = boto(process.url, "ec2").run_instances(**launch)["Instances"][0]["InstanceId"]
    victim = next(i for i in call("status", home=tmp_path)["instances"] if i["pool"] == "train")["instance_id"]
    boto(process.url, "autoscaling").enter_standby(
        AutoScalingGroupName="train-asg", InstanceIds=[victim], ShouldDecrementDesiredCapacity=True
    )
    call("inject", {"instances": [victim], "code": "XID_79", "gpu": 2}, tmp_path)
    assert process.end(signal.SIGKILL) == -signal.SIGKILL

    process = Process(tmp_path).wait()
    after = call("status", home=tmp_path)
    rows = {i["instance_id"]: i for i in after["instances"]}
    assert len(rows) == 45 and rows[victim]["faults"] == ["XID_79"]
    assert [g["desired"] for g in after["groups"] if g["pool"] == "train"] == [19]
    assert ("RunInstances", made, "ok") in [(c["operation"], c["target"], c["outcome"]) for c in after["calls"]]
    assert boto(process.url, "ec2").run_instances(**launch)["Instances"][0]["InstanceId"] == made
    deadline = time.monotonic() + 8
    while not (row := next(i for i in call("status", home=tmp_path)["instances"] if i["instance_id"] == made))[
        "status"
    ]:
        assert time.monotonic() < deadline, "the launch did not go on after the restart"
        time.sleep(0.1)
    assert row["state"] == "running" and row["status"] == "ACTIVE"
    assert process.end() == 0


def test_a_second_start_finds_the_same_fleet_and_the_same_seed_makes_the_same_one(tmp_path):
    ids = []
    for home in ("a", "a", "b"):
        process = Process(tmp_path / home, HEALTHBOARD_SANDBOX_SEED="7").wait()
        ids.append(sorted(i["instance_id"] for i in call("status", home=tmp_path / home)["instances"]))
        assert process.end() == 0
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize(
    "env, word",
    [
        ({"HEALTHBOARD_SANDBOX_POOLS": "train=boat:3"}, "HEALTHBOARD_SANDBOX_POOLS"),
        ({"HEALTHBOARD_SANDBOX_SPEED": "fast"}, "HEALTHBOARD_SANDBOX_SPEED"),
        ({"HEALTHBOARD_WEB_URL": "http://example.com"}, "loopback"),
        ({"HEALTHBOARD_MODE": "aws"}, "aws mode"),
        ({"HEALTHBOARD_SANDBOX_PORT": "1"}, "port"),
    ],
)
def test_what_it_cannot_use_ends_it_with_2_and_one_line(tmp_path, env, word):
    if word == "port" and os.geteuid() == 0:
        import socket

        busy = socket.socket()
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        env = {"HEALTHBOARD_SANDBOX_PORT": str(busy.getsockname()[1])}
    process = Process(tmp_path, **env)
    _, error = process.child.communicate(timeout=10)
    assert process.child.returncode == 2 and word in error and len(error.strip().splitlines()) == 1


def test_accounts_and_regions_each_have_a_fleet_of_their_own(tmp_path):
    process = Process(
        tmp_path,
        HEALTHBOARD_ACCOUNTS="111122223333,444455556666=arn:aws:iam::444455556666:role/healthboard",
        HEALTHBOARD_REGIONS="us-east-1,eu-west-1",
        HEALTHBOARD_SANDBOX_POOLS="solo=template:3",
    ).wait()
    try:
        seen: dict[tuple[str, str], set[str]] = {}
        for account in ("111122223333", "444455556666"):
            for region in ("us-east-1", "eu-west-1"):
                rows = boto(process.url, "ec2", account, region).describe_instances()["Reservations"]
                seen[account, region] = {r["Instances"][0]["InstanceId"] for r in rows}
        assert [len(ids) for ids in seen.values()] == [7] * 4
        assert len(set.union(*seen.values())) == 28
        one = next(iter(seen["444455556666", "eu-west-1"]))
        boto(process.url, "ec2", "444455556666", "eu-west-1").describe_instances(InstanceIds=[one])
    finally:
        assert process.end() == 0


def test_a_second_sandbox_on_the_same_state_is_refused(tmp_path):
    first = Process(tmp_path).wait()
    url = (tmp_path / "run" / "sandbox.url").read_text()
    second = Process(tmp_path)
    _, error = second.child.communicate(timeout=10)
    assert second.child.returncode == 2 and "another sandbox is running" in error
    (tmp_path / "run" / "sandbox.url").write_text(url)
    assert first.end() == 0

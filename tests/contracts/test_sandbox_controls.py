"""The sandbox's controls as other programs use them: what each changing call is logged as, defaults, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from healthboard.sandbox.client import call
from healthboard.sandbox.config import from_env
from healthboard.sandbox.faults import FAULTS
from tests.sandbox.conftest import Fleet, code_of

ROOT = Path(__file__).resolve().parents[2]
NEVER = "i-0123456789abcdef0"


@pytest.fixture
def fleet(tmp_path):
    made = Fleet(tmp_path)
    yield made
    made.stop()


def logged(fleet: Fleet, operation: str) -> list[tuple[str, str]]:
    """(target, outcome) of each such call."""
    calls = call("status", home=fleet.home)["calls"]
    return [(c["target"], c["outcome"]) for c in calls if c["operation"] == operation]


def test_every_changing_call_is_logged_with_the_instance_that_it_is_about(fleet):
    solo, other, member = fleet.pool("solo")[0], fleet.pool("solo")[1], fleet.pool("train")[0]
    group = {"AutoScalingGroupName": "train-asg", "InstanceIds": [member.id]}
    task = next(t for t in fleet.world.tasks.values() if t.container == fleet.container(solo).id)

    fleet.ecs.stop_task(cluster="gpu", task=task.id)
    assert logged(fleet, "StopTask") == [(solo.id, "ok")]
    fleet.drain(solo)
    fleet.drain(solo, "ACTIVE")
    assert logged(fleet, "UpdateContainerInstancesState") == [(solo.id, "ok")] * 2
    fleet.ec2.reboot_instances(InstanceIds=[solo.id])
    assert logged(fleet, "RebootInstances") == [(solo.id, "ok")]
    fleet.ec2.create_tags(Resources=[solo.id], Tags=[{"Key": "a", "Value": "b"}])
    assert logged(fleet, "CreateTags") == [(solo.id, "ok")]
    fleet.ec2.stop_instances(InstanceIds=[other.id])
    assert logged(fleet, "StopInstances") == [(other.id, "ok")]
    fleet.until(lambda: other.state == "stopped", within=60)
    fleet.ec2.start_instances(InstanceIds=[other.id])
    assert logged(fleet, "StartInstances") == [(other.id, "ok")]

    fleet.asg.enter_standby(**group, ShouldDecrementDesiredCapacity=True)
    fleet.advance(10)
    fleet.asg.exit_standby(**group)
    fleet.advance(10)
    fleet.asg.detach_instances(**group, ShouldDecrementDesiredCapacity=True)
    fleet.advance(10)
    fleet.asg.attach_instances(**group)
    fleet.advance(10)
    fleet.asg.terminate_instance_in_auto_scaling_group(InstanceId=member.id, ShouldDecrementDesiredCapacity=True)
    for operation in ("EnterStandby", "ExitStandby", "DetachInstances", "AttachInstances",
                      "TerminateInstanceInAutoScalingGroup"):  # fmt: skip
        assert logged(fleet, operation) == [(member.id, "ok")], operation

    container = fleet.container(solo).id
    fleet.ec2.terminate_instances(InstanceIds=[solo.id])
    fleet.ecs.deregister_container_instance(cluster="gpu", containerInstance=container, force=True)
    assert logged(fleet, "TerminateInstances") == [(solo.id, "ok")]
    assert logged(fleet, "DeregisterContainerInstance") == [(solo.id, "ok")]
    launch = {"MinCount": 1, "MaxCount": 1, "LaunchTemplate": {"LaunchTemplateName": "solo"}, "ClientToken": "once"}
    new = fleet.ec2.run_instances(**launch)["Instances"][0]["InstanceId"]
    assert logged(fleet, "RunInstances") == [(new, "ok")]

    assert code_of(lambda: fleet.ec2.reboot_instances(InstanceIds=[NEVER])) == "InvalidInstanceID.NotFound"
    assert logged(fleet, "RebootInstances")[-1] == (NEVER, "InvalidInstanceID.NotFound")
    fleet.advance(60)
    kinds = [a["kind"] for a in call("status", home=fleet.home)["activities"] if a["instance_id"] == member.id]
    assert [k for k in kinds if k != "attach"] == ["enter_standby", "exit_standby", "detach", "terminate"]


def test_status_has_the_keys_and_kinds_of_the_contract(fleet):
    fleet.ec2.describe_instances()
    told = call("status", home=fleet.home)
    assert set(told) >= {"endpoint", "calls", "activities", "groups", "instances"}
    (made,) = told["calls"]
    assert set(made) >= {"at", "service", "operation", "target", "outcome"}
    assert datetime.fromisoformat(made["at"]).utcoffset().total_seconds() == 0
    for group in told["groups"]:
        assert set(group) >= {"group", "pool", "desired", "in_service", "standby"}
        assert all(isinstance(group[name], int) for name in ("desired", "in_service", "standby"))
    by_pool: dict[str, int] = {}
    for row in told["instances"]:
        assert set(row) >= {"instance_id", "state", "pool", "zone", "status", "agent_connected", "tasks"}
        assert isinstance(row["tasks"], int) and isinstance(row["agent_connected"], bool)
        by_pool[row["pool"]] = by_pool.get(row["pool"], 0) + 1
    assert (by_pool["train"], by_pool["infer"], by_pool["solo"]) == (20, 6, 14)
    types = {row["pool"]: row["type"] for row in told["instances"]}
    assert (types["train"], types["infer"], types["solo"]) == ("p5.48xlarge", "g6e.12xlarge", "p4d.24xlarge")
    assert len({row["zone"] for row in told["instances"]}) == 3


def test_the_environment_has_the_defaults_of_the_contract(tmp_path):
    plain = from_env({"HEALTHBOARD_HOME": str(tmp_path)})
    assert (plain.speed, plain.script, plain.replace_after_s) == (10, True, 45)
    assert [(p.name, p.owner, p.size) for p in plain.pools] == [
        ("train", "group", 20), ("infer", "group", 6), ("solo", "template", 14),
    ]  # fmt: skip
    told = {"SCRIPT": "off", "SEED": "7", "SPEED": "30", "POOLS": "a=group:2,b=template:1"}
    changed = from_env({"HEALTHBOARD_HOME": str(tmp_path), **{f"HEALTHBOARD_SANDBOX_{k}": v for k, v in told.items()}})
    assert (changed.script, changed.seed, changed.speed) == (False, "7", 30)
    assert [(p.name, p.owner, p.size) for p in changed.pools] == [("a", "group", 2), ("b", "template", 1)]


def manage(*args: str, home: Path, text: str = "", **env: str) -> subprocess.CompletedProcess:
    """The command as a person types it: with whatever Python is on the machine."""
    python = getattr(sys, "_base_executable", sys.executable)
    if not (ROOT / ".venv" / "bin" / "python").exists():
        python = sys.executable  # nothing to re-execute with
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DJANGO_", "HEALTHBOARD_", "DATABASE_"))}
    return subprocess.run(
        [python, str(ROOT / "manage.py"), *args], cwd=home, env={**clean, "HEALTHBOARD_HOME": str(home), **env},
        input=text, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def one_line(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    return line


def test_inject_works_from_any_folder_with_any_python_and_ends_with_2_on_bad_words(fleet):
    one, two = (i.id for i in fleet.pool("train")[:2])
    done = manage("inject", f"{one},{two}", "XID_79", "--gpu", "3", home=fleet.home)
    assert done.returncode == 0, done.stderr
    assert [f["code"] for f in fleet.world.instances[one].faults] == ["XID_79"]
    assert manage("inject", one, "XID_79", "--clear", home=fleet.home).returncode == 0
    assert fleet.world.instances[one].faults == [] and fleet.world.instances[two].faults
    assert "XID_999" in one_line(manage("inject", one, "XID_999", home=fleet.home))
    assert "i-nothing" in one_line(manage("inject", "i-nothing", "XID_79", home=fleet.home))
    status = manage("sandbox", "status", "--json", home=fleet.home)
    assert json.loads(status.stdout)["endpoint"] == fleet.url


def test_the_list_names_code_verdict_and_cure(tmp_path):
    done = manage("inject", "--list", home=tmp_path)
    head, *rows = done.stdout.strip().splitlines()
    assert done.returncode == 0 and re.split(r"\s{2,}", head) == ["CODE", "SHOWN BY", "EXPECTED VERDICT", "CURE"]
    assert {row.split()[0] for row in rows} == set(FAULTS)
    for row in rows:
        _, _, verdict, cure = re.split(r"\s{2,}", row, maxsplit=3)
        assert re.match(r"(HARDWARE|AMBIGUOUS|WATCH|WORKLOAD|UNKNOWN|HEALTHY), [A-Z_]+$", verdict), row
        assert cure
    wanted = {"XID_79", "XID_95", "XID_62", "XID_110", "XID_140", "XID_48", "XID_119", "EC2_SYSTEM_IMPAIRED"}
    assert wanted <= set(FAULTS)


XID = "[1234.5] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def test_explain_ends_as_the_contract_says(tmp_path):
    done = manage("explain", "-", home=tmp_path, text=XID, DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert set(told) >= {"verdict", "action", "codes", "findings", "ignored"}
    assert (told["verdict"], told["codes"]) == ("HARDWARE", ["XID_79"])
    (finding,) = told["findings"]
    assert set(finding) == {"code", "verdict", "action", "scope", "instance", "gpu", "count", "first", "last", "rule",
                            "why", "sources"}  # fmt: skip
    assert finding["gpu"] == "0000:3b:00"

    (tmp_path / "quiet.log").write_text("[1.0] systemd[1]: Started something.\n")
    quiet = manage("explain", "--format", "kernel-log", str(tmp_path / "quiet.log"), home=tmp_path)
    assert quiet.returncode == 0 and json.loads(quiet.stdout)["verdict"] == "HEALTHY"
    for text in ("", "\x00\x01\x02", "neither this nor that\n"):
        one_line(manage("explain", "-", home=tmp_path, text=text))
    one_line(manage("explain", str(tmp_path / "nothing"), home=tmp_path))

    lines = [{"id": "a", "kind": "kernel-log", "text": XID}, {"id": "b", "kind": "auto", "text": ""}]
    many = manage("explain", "--jsonl", "-", home=tmp_path, text="".join(json.dumps(row) + "\n" for row in lines))
    first, second = (json.loads(line) for line in many.stdout.splitlines())
    assert many.returncode == 2 and (first["id"], first["verdict"]) == ("a", "HARDWARE")
    assert set(second) == {"id", "error"} and second["id"] == "b"

"""What a process may send is what its code names, no more and no less, and nothing else leaves it."""

from __future__ import annotations

import pytest

from healthboard import aws, operations
from tests.collect.conftest import ACCOUNTS, REGIONS
from tests.rights import source

PLACE = {"account": ACCOUNTS[0], "region": REGIONS[0]}


def plain(table: operations.Operations) -> dict[str, set[str]]:
    return {service: set(names) for service, names in table.items() if names}


@pytest.mark.parametrize("process", ["reader", "actor"])
def test_the_declared_operations_are_those_that_the_source_names(process):
    assert source.of(process) == plain(operations.OF[process])


def test_the_probe_declares_what_it_names():
    own = {module for module in source.graph().modules if module.startswith("healthboard.probes")}
    named = {found for module in own for found in source.operations(module)}
    declared = {(service, name) for service, names in operations.PROBE.items() for name in names}
    rest = {(service, name) for service, names in operations.OF["all"].items() for name in names}
    assert named <= declared and declared - rest <= named


@pytest.mark.parametrize("process", ["web", "beat", "sender"])
def test_neither_web_nor_beat_nor_sender_reaches_code_that_calls_aws(process):
    """They read settings of accounts; a node's own signed question is passed on to STS by the web without credentials."""
    reached = source.reached(process) - {"healthboard.aws", "healthboard.aws_roles"}
    assert len(reached) > 1 and not {module for module in reached if source.makes_clients(module)}
    assert {found for module in reached for found in source.operations(module)} <= {("sts", "GetCallerIdentity")}
    assert operations.OF[process] == {}


def test_the_code_that_does_is_found():
    """The search above can find something."""
    assert {"workers.repair.run", "workers.collect.reader"} <= {
        m for m in source.graph().modules if source.makes_clients(m)
    }


def test_only_the_probe_asks_for_other_operations_than_its_process_has():
    found = [
        p for f in ("healthboard", "workers") for p in (source.ROOT / f).rglob("*.py") if "allowed=" in p.read_text()
    ]
    calling = [p.name for p in found if "aws.client(" in p.read_text() or "import client" in p.read_text()]
    assert calling == ["ground.py"]


@pytest.mark.parametrize("process", ["web", "beat", "sender"])
@pytest.mark.parametrize("changing", [False, True])
def test_a_process_without_rights_is_given_no_client(sandbox, monkeypatch, process, changing):
    monkeypatch.setenv("HEALTHBOARD_PROCESS", process)
    with pytest.raises(aws.NotAllowed, match=f"the {process} process makes no calls to AWS"):
        aws.client("ec2", **PLACE, changing=changing)
    with pytest.raises(aws.NotAllowed):
        aws.client("ec2", **PLACE, allowed=operations.PROBE)


def test_the_reader_is_given_no_client_that_changes(sandbox, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_PROCESS", "reader")
    with pytest.raises(aws.NotAllowed, match="changes nothing"):
        aws.client("ec2", **PLACE, changing=True)


@pytest.mark.parametrize(
    "process, service, method, request_",
    [
        ("reader", "ec2", "terminate_instances", {"InstanceIds": ["i-1"]}),
        ("reader", "ec2", "get_console_output", {"InstanceId": "i-1"}),
        ("reader", "autoscaling", "describe_auto_scaling_instances", {}),
        ("actor", "sqs", "receive_message", {"QueueUrl": "x"}),
        ("actor", "ec2", "modify_instance_attribute", {"InstanceId": "i-1"}),
        ("actor", "ec2", "create_tags", {"Resources": ["i-1"], "Tags": [{"Key": "healthboard:managed", "Value": "true"}]}),
        ("all", "ec2", "delete_tags", {"Resources": ["i-1"]}),
        ("all", "ecs", "delete_cluster", {"cluster": "gpu"}),
    ],
)  # fmt: skip
def test_an_operation_that_is_not_declared_does_not_leave(sandbox, monkeypatch, process, service, method, request_):
    monkeypatch.setenv("HEALTHBOARD_PROCESS", process)
    api = aws.client(service, **PLACE)
    sent = []
    api.meta.events.register("before-send", lambda request, **_: sent.append(request))
    part = "reader" if process == "all" else process
    with pytest.raises(aws.NotAllowed, match=f"not among the operations of the {part}"):
        getattr(api, method)(**request_)
    assert sent == []


def test_one_worker_for_all_keeps_reading_and_repairing_apart(sandbox):
    reading, repairing = aws.client("ec2", **PLACE), aws.client("ec2", **PLACE, part="actor")
    with pytest.raises(aws.NotAllowed, match="of the reader"):
        reading.get_console_output(InstanceId="i-1")
    with pytest.raises(aws.NotAllowed, match="of the actor"):
        repairing.describe_instance_types()
    assert reading.describe_instance_types()["InstanceTypes"] and repairing.describe_instances()["Reservations"]


def test_a_declared_operation_leaves(sandbox, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_PROCESS", "reader")
    assert aws.client("ec2", **PLACE).describe_instances()["Reservations"]


def test_a_process_that_does_not_exist_is_one_clear_line(sandbox, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_PROCESS", "root")
    with pytest.raises(aws.BadSetting, match="HEALTHBOARD_PROCESS=root must be one of"):
        aws.client("ec2", **PLACE)

"""The seam: what the reporter writes is what the server's schema and the diagnosis take, word for word."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from healthboard.api import node_intake
from healthboard.api.node_schema import Report
from healthboard.diagnosis import node_report
from healthboard.people import tokens
from healthboard.people.actors import system
from tests import factories
from tests.api.node_helpers import post, report
from tests.node.machine import BOOT
from workers.node import healthboard_node as node


def _read(report):
    plain = Report.model_validate(report).model_dump(by_alias=True)
    return node_report.read(plain, received_at=datetime.now(UTC))


def _values(told, name):
    return [r.value for r in told.readings if r.name == name]


def test_a_well_machine_is_understood(machine):
    told = _read(machine.once())
    assert (_values(told, "NVML"), _values(told, "GPU_COUNT"), told.driver) == (["ok"], [8], "580.95.05")
    assert _values(told, "GPU_STATUS") == ["ok"] * 8
    assert told.events == ()


def test_a_broken_machine_is_understood(machine, probe):
    (machine.path / "state").mkdir()
    well = node.Inventory(
        str(machine.path / "state/inventory.json"), node.machine_identity(machine.env["HEALTHBOARD_SYSFS"]), BOOT
    )
    well.complete(probe().read())
    machine.set(3, lost=1)
    machine.set(4, remap="0 9 0 1", recovery=2)
    machine.say("NVRM: Xid (PCI:0000:3e:00): 79, pid=4242, name=train, GPU has fallen off the bus.", 7)
    told = _read(machine.once())
    assert [e.code for e in told.events] == ["XID_79"]
    assert told.events[0].gpu == machine.uuid(3)
    assert _values(told, "GPU_STATUS").count("lost") == 1
    assert 2 in _values(told, "RECOVERY_ACTION")
    assert any(r["failure"] for r in _values(told, "ROW_REMAP"))


def test_a_blind_machine_is_understood_as_unknown(machine):
    machine.write("init crash")
    told = _read(machine.once())
    assert (_values(told, "NVML"), _values(told, "GPU_COUNT"), told.gpus) == (["crashed"], [], ())


@pytest.mark.django_db
def test_the_servers_word_for_too_much_history_is_the_one_that_the_reporter_knows(client, monkeypatch):
    one = factories.instance()
    monkeypatch.setattr(node_intake, "rows", node_intake.Limiter(1, 0.01))
    node_intake.rows.spent(one.pk, 5)
    answer = post(client, report(), tokens.issue_node(one, actor=system("test")))
    assert (answer.status_code, answer.json()["error"]) == (429, node.TOO_MUCH)
    assert int(answer["Retry-After"]) > node.LONG_WAIT_S and node._is_ours(answer.json())


def test_every_field_that_the_reporter_writes_is_known_to_the_server(machine):
    server, ours = Report.model_json_schema(by_alias=True), node.REPORT_SCHEMA
    assert set(ours["properties"]) <= set(server["properties"])
    gpu = server["$defs"]["GpuReport"]["properties"]
    assert set(node.GPU_SCHEMA["properties"]) <= set(gpu)

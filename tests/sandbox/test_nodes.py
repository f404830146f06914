"""The simulated nodes talk to the web server as real reporters do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from healthboard.sandbox.config import parse_pools
from tests.sandbox.conftest import Fleet
from tests.sandbox.test_ec2 import control
from tests.sandbox.web import Web


@pytest.fixture
def web(tmp_path) -> Iterator[Web]:
    made = Web(tmp_path)
    yield made
    made.close()


@pytest.fixture
def nodes(tmp_path, web) -> Iterator[Fleet]:
    made = Fleet(tmp_path, post=True, web_url=web.url, pools=parse_pools("train=group:3,solo=template:2"))
    yield made
    made.stop()


def settle(fleet: Fleet, happened: Callable[[], object], within: float = 60) -> None:
    """Advance the fleet's clock, waiting each time for what is being posted."""
    end = fleet.clock.offset + within
    while not happened():
        assert fleet.clock.offset < end, "never happened"
        fleet.advance(0.5)
        posted(fleet)


def posted(fleet: Fleet) -> None:
    """Wait until the posting threads have nothing under way."""
    end = time.monotonic() + 5
    while any(node.busy for node in fleet.engine.crew.nodes.values()):
        assert time.monotonic() < end
        time.sleep(0.001)


def test_every_running_node_enrols_and_then_reports_with_growing_numbers(nodes, web):
    alive = [i.id for i in nodes.world.instances.values()]
    settle(nodes, lambda: all(len(web.of(i)) >= 3 for i in alive))
    for id_ in alive:
        reports = web.of(id_)
        assert [r["seq"] for r in reports] == list(range(1, len(reports) + 1))
        assert {r["boot_id"] for r in reports} == {nodes.world.instances[id_].boot_id}
        assert web.enrolments.count(id_) == 1
    times = [r["sent_at"] for r in web.of(alive[0])]
    assert len(set(times)) == len(times)
    report = web.of(nodes.pool("train")[0].id)[0]
    assert report["gpu_count"] == 8 and len(report["gpus"]) == 8 and report["nvml"]["state"] == "ok"
    assert report["kernel"] == [] and report["recorder"] == [] and report["results"] == []


def test_a_node_that_is_not_known_yet_asks_again_quietly(nodes, web):
    one = nodes.pool("solo")[0].id
    web.known = {i.id for i in nodes.world.instances.values()} - {one}
    settle(nodes, lambda: web.enrolments.count(one) >= 3)
    assert not web.of(one)
    web.known = None
    settle(nodes, lambda: web.of(one))


def test_a_kernel_line_is_reported_at_once_and_once_with_the_flight_recorder(nodes, web):
    one = nodes.pool("solo")[0]
    settle(nodes, lambda: web.of(one.id))
    had = len(web.of(one.id))
    control(nodes, "inject", instances=[one.id], code="XID_79", gpu=3)
    settle(nodes, lambda: len(web.of(one.id)) > had, within=2)
    report = web.of(one.id)[had]
    texts = [line["text"] for line in report["kernel"]]
    assert f"NVRM: Xid (PCI:{one.gpus[3]['pci']}): 79, GPU has fallen off the bus." in texts
    assert all(line["facility"] == 0 for line in report["kernel"])
    lost = report["gpus"][3]
    assert (lost["status"], lost["code"], lost["uuid"], lost["temperature_c"]) == (
        "lost",
        15,
        one.gpus[3]["uuid"],
        None,
    )
    assert len(report["recorder"]) == 20 and set(report["recorder"][0]["gpus"]) == {c["uuid"] for c in one.gpus}
    settle(nodes, lambda: len(web.of(one.id)) > had + 1)
    later = web.of(one.id)[had + 1]
    assert later["kernel"] == [] and later["recorder"] == [] and later["gpus"][3]["status"] == "lost"


def test_kernel_lines_wait_until_a_report_was_accepted(nodes, web):
    one = nodes.pool("solo")[0]
    settle(nodes, lambda: web.of(one.id))
    web.status = 503
    had = len(web.of(one.id))
    control(nodes, "inject", instances=[one.id], code="XID_119")
    settle(nodes, lambda: len(web.of(one.id)) >= had + 2)
    web.status = 200
    mark = len(web.of(one.id))
    settle(nodes, lambda: len(web.of(one.id)) > mark)
    sequences = [[line["seq"] for line in r["kernel"]] for r in web.of(one.id)[had : mark + 1]]
    assert sequences[0] and all(s == sequences[0] for s in sequences)
    settle(nodes, lambda: web.of(one.id)[-1]["kernel"] == [])


@pytest.mark.parametrize(
    "code, ok, failing", [(None, True, None), ("XID_79", False, "gpu_count"), ("XID_119", False, "gsp")]
)
def test_a_verb_that_is_asked_for_runs_once_and_its_result_tells_of_the_fault(nodes, web, code, ok, failing):
    one = nodes.pool("solo")[0]
    settle(nodes, lambda: web.of(one.id))
    if code:
        control(nodes, "inject", instances=[one.id], code=code)
    for _ in range(2):  # the same request again changes nothing
        web.ask[one.id] = [{"id": "17", "verb": "diagnose-1"}]
        settle(nodes, lambda: one.id not in web.ask)
    settle(nodes, lambda: any(r["results"] for r in web.of(one.id)))
    nodes.advance(5)
    posted(nodes)
    (result,) = [x for r in web.of(one.id) for x in r["results"]]
    assert (result["request"], result["verb"], result["ok"]) == ("17", "diagnose-1", ok)
    assert [c["name"] for c in result["checks"] if not c["ok"]] == ([failing] if failing else [])
    assert result["started_at"] < result["finished_at"] and "gpu_count" in result["output"]


def test_a_revoked_token_makes_the_node_enrol_again(nodes, web):
    one = nodes.pool("solo")[0].id
    settle(nodes, lambda: web.of(one))
    web.revoked.add(f"{one}.1")
    settle(nodes, lambda: web.enrolments.count(one) == 2)
    had = len(web.of(one))
    settle(nodes, lambda: len(web.of(one)) > had)


@pytest.mark.parametrize("code", ["EC2_SYSTEM_IMPAIRED", "MONITORING_GAP"])
def test_a_silent_node_answers_nothing(nodes, web, code):
    one = nodes.pool("solo")[0]
    settle(nodes, lambda: web.of(one.id))
    control(nodes, "inject", instances=[one.id], code=code)
    nodes.advance(2)
    posted(nodes)
    had = len(web.of(one.id))
    nodes.advance(30)
    posted(nodes)
    assert len(web.of(one.id)) == had
    assert nodes.container(one).connected is (code == "MONITORING_GAP")


def test_after_a_reboot_it_reports_with_the_new_boot_id_from_one(nodes, web):
    one = nodes.pool("solo")[0]
    settle(nodes, lambda: web.of(one.id))
    first = one.boot_id
    nodes.ec2.reboot_instances(InstanceIds=[one.id])
    settle(nodes, lambda: web.of(one.id)[-1]["boot_id"] != first)
    assert web.of(one.id)[-1]["seq"] == 1


def test_what_has_just_booted_reports_at_once_and_for_a_while_more_often_than_the_others(nodes, web):
    one, other = nodes.pool("solo")
    settle(nodes, lambda: web.of(one.id) and web.of(other.id))
    first = one.boot_id
    nodes.ec2.reboot_instances(InstanceIds=[one.id])
    settle(nodes, lambda: one.boot_id != first)
    nodes.advance(60 / 10 + 0.5)  # the reporter starts a minute after its kernel
    posted(nodes)
    assert web.of(one.id)[-1]["boot_id"] == one.boot_id
    had, beside = len(web.of(one.id)), len(web.of(other.id))
    settle_for(nodes, 10)
    assert len(web.of(one.id)) - had >= 4 and len(web.of(other.id)) - beside <= 2
    settle_for(nodes, 30)
    had = len(web.of(one.id))
    settle_for(nodes, 10)
    assert len(web.of(one.id)) - had <= 2


def settle_for(fleet: Fleet, seconds: float) -> None:
    end = fleet.clock.offset + seconds
    settle(fleet, lambda: fleet.clock.offset >= end)


def test_a_replacement_enrols_once_it_is_known_and_its_gpus_are_others(nodes, web):
    one = nodes.pool("solo")[0]
    made = nodes.ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        LaunchTemplate={"LaunchTemplateId": one.template, "Version": "2"},
        SubnetId=nodes.subnet(),
        ClientToken="x",
    )["Instances"][0]["InstanceId"]
    settle(nodes, lambda: web.of(made))
    assert {g["uuid"] for g in web.of(made)[0]["gpus"]}.isdisjoint({c["uuid"] for c in one.gpus})

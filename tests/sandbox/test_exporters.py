"""The simulated exporters: one address each, the node's own state, and a real exporter's silences."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from healthboard.diagnosis import dcgm_scrape, node_report
from healthboard.diagnosis.dcgm_scrape import Scrape
from healthboard.diagnosis.evaluate import evaluate
from healthboard.diagnosis.signals import Context
from healthboard.sandbox import control
from healthboard.sandbox.config import parse_pools
from healthboard.sandbox.faults import FAULTS
from healthboard.sandbox.injure import clear, inject
from healthboard.sandbox.nodes import exporter_text, report
from healthboard.sandbox.nodes.exporters import address
from tests.sandbox.conftest import Fleet
from workers.collect.fetch import Failure, Limits, Target, gather


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    pools = parse_pools("train=group:2,infer=group:1,solo=template:1")
    made = Fleet(tmp_path_factory.mktemp("exporters"), pools=pools, exporters=True)
    yield made
    made.engine.stop()


def scrape(fleet, *machines, node_s: float = 10) -> list[Scrape | Failure]:
    fleet.engine.exporters.look()
    port = fleet.engine.server.server_address[1]
    targets = {m.id: Target(address(m.private_ip), port) for m in machines}
    found = gather(targets, partial(dcgm_scrape.read, at=datetime.now(UTC)), limits=Limits(node_s=node_s))
    return [found[m.id] for m in machines]


def values(told: Scrape, name: str) -> dict:
    return {r.gpu: r.value for r in told.readings if r.name == name}


@pytest.fixture
def broken(fleet):
    """Puts a fault on the first machine of `train`; it is well again afterwards."""
    machine = fleet.pool("train")[0]

    def make(code: str, gpu: int = 2, **limits: float):
        inject(fleet.world, machine, code, gpu)
        return scrape(fleet, machine, **limits)[0], machine.gpus[gpu]["uuid"]

    yield make
    machine.faults, machine.console = [], []


def test_each_machine_answers_at_its_own_address_with_its_own_gpus(fleet):
    machines = [fleet.pool(name)[n] for name, n in (("train", 0), ("train", 1), ("infer", 0), ("solo", 0))]
    for machine, told in zip(machines, scrape(fleet, *machines), strict=True):
        assert set(values(told, "XID_LAST")) == {card["uuid"] for card in machine.gpus}
        assert values(told, "GPU_COUNT") == {None: len(machine.gpus)}
        assert set(values(told, "TEMPERATURE").values()) == {"ok"}
        assert told.power and told.xids == {}


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("XID_95", "XID_LAST", 95),
        ("XID_95", "RECOVERY_ACTION", 1),
        ("ROW_REMAP_FAILURE", "ROW_REMAP", {"failure": True, "pending": False, "uncorrectable": 8, "correctable": 3}),
        ("XID_48", "ECC", {"volatile_uncorrected": 1, "aggregate_uncorrected": 1, "volatile_corrected": 0}),
        ("GPU_HW_THERMAL_SLOWDOWN", "CLOCK_EVENTS", 0x48),
    ],
)
def test_a_fault_shows_as_an_exporter_shows_it(broken, code, name, value):
    told, gpu = broken(code)
    assert values(told, name)[gpu] == value


def test_a_lost_gpu_keeps_its_xid_alone_and_a_missing_one_nothing(broken):
    told, gpu = broken("XID_79")
    assert values(told, "XID_LAST")[gpu] == 79 and gpu not in values(told, "ECC")
    assert told.xids == {(gpu, 79): 1} and values(told, "GPU_COUNT") == {None: 7}
    told, other = broken("GPU_MISSING", 5)
    assert other not in values(told, "XID_LAST") and values(told, "GPU_COUNT") == {None: 6}


def test_119_blinds_the_exporter_of_the_whole_host(broken):
    told, gpu = broken("XID_119")
    assert values(told, "XID_LAST") == {gpu: 119}
    assert values(told, "GPU_COUNT") == {} == values(told, "ECC")


def test_a_driver_that_hangs_or_does_not_load_silences_it(fleet, broken):
    told, _ = broken("NVML_PROBE_HUNG", node_s=0.5)
    assert told == Failure("no whole answer within 0.5 s")
    clear(fleet.world, fleet.pool("train")[0], "NVML_PROBE_HUNG")
    told, _ = broken("NVML_LIB_RM_VERSION_MISMATCH")
    assert told == Failure("Connection refused")


@pytest.mark.parametrize("code", [c for c, f in FAULTS.items() if f.lines or f.gpu or f.nvml])
def test_a_fault_reads_the_same_with_an_exporter_beside_the_reporter(fleet, code):
    """Its word is one more, never another verdict; and what only a person may decide stays so."""
    machine, fault = fleet.pool("train")[0], FAULTS[code]
    machine.faults, machine.console, machine.kernel = [], [], []
    events, rows, before = [], {}, {}
    try:
        for second in (0, 20, 40):
            fleet.clock.offset += 20
            at = datetime.fromtimestamp(fleet.world.now(), UTC)
            if second == 20:
                inject(fleet.world, machine, code, 3)
            node = node_report.read(report.build(fleet.world, machine, []), received_at=at)
            text = exporter_text.text(fleet.world, machine)
            told = dcgm_scrape.read(text.encode(), at=at) if text else None
            events += [*node.events, *(dcgm_scrape.new_xids(told, before, at=at) if told else ())]
            before = told.xids if told else {}
            for r in (*node.readings, *(told.readings if told else ())):
                old = rows.setdefault((r.name, r.gpu, r.source, str(r.value)), r)
                rows[r.name, r.gpu, r.source, str(r.value)] = replace(
                    r, since=old.since, observations=1 + (old is not r)
                )
        context = Context(instance="i-1", architecture="hopper", expected_gpus=8)
        got = evaluate(events, rows.values(), now=at, context=context)
    finally:
        machine.faults, machine.console, machine.kernel = [], [], []
    assert (str(got.verdict), str(got.action)) == (fault.verdict, fault.action), (got.codes, got.why)
    assert got.may_act is (fault.verdict == "HARDWARE")
    assert got.primary is None or got.primary.code == code or code in got.codes


def test_older_exporters_print_sentinels_and_the_older_label(fleet):
    small, old = fleet.pool("infer")[0], fleet.pool("solo")[0]
    assert f" {exporter_text.UNSUPPORTED}\n" in exporter_text.text(fleet.world, small)
    assert ',Hostname="ip-' in exporter_text.text(fleet.world, old)


def test_a_dead_host_and_a_drained_one_are_silent(fleet):
    dead, drained, well = *fleet.pool("train"), fleet.pool("infer")[0]
    inject(fleet.world, dead, "EC2_SYSTEM_IMPAIRED")
    fleet.world.container_of[drained.id].status = "DRAINING"
    gone = Failure("Connection refused")
    answers = scrape(fleet, dead, drained, well)
    assert answers[:2] == [gone, gone] and isinstance(answers[2], Scrape)
    clear(fleet.world, dead, "EC2_SYSTEM_IMPAIRED")
    fleet.world.container_of[drained.id].status = "ACTIVE"
    assert [a if isinstance(a, Failure) else "" for a in scrape(fleet, dead, drained)] == ["", ""]


def test_one_that_is_down_by_the_control_answers_again_when_that_is_cleared(fleet):
    down, well = fleet.pool("train")
    for clear_it, wanted in ((False, [Failure, Scrape]), (True, [Scrape, Scrape])):
        body = {"instances": [down.id], "code": "DCGM_UNREACHABLE", "clear": clear_it}
        control.handle(fleet.engine.sandbox, fleet.url, "inject", body)
        assert [type(answer) for answer in scrape(fleet, down, well)] == wanted


def test_off_unless_asked_for(tmp_path):
    made = Fleet(tmp_path, pools=parse_pools("solo=template:1"))
    try:
        assert made.engine.exporters._thread is None
    finally:
        made.engine.stop()

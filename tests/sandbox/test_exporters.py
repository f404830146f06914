"""The simulated exporters: one address each, the node's own state, and a real exporter's silences."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest

from healthboard.diagnosis import dcgm_scrape
from healthboard.diagnosis.dcgm_scrape import Scrape
from healthboard.sandbox.config import parse_pools
from healthboard.sandbox.injure import clear, inject
from healthboard.sandbox.nodes import exporter_text
from healthboard.sandbox.nodes.exporters import address
from tests.sandbox.conftest import Fleet
from workers.collect.fetch import Failure, Limits, Target, gather


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    pools = parse_pools("train=group:2,infer=group:1,solo=template:1")
    made = Fleet(tmp_path_factory.mktemp("exporters"), pools=pools, exporters=True)
    yield made
    made.engine.stop()


def scrape(fleet, *machines) -> list[Scrape | Failure]:
    fleet.engine.exporters.look()
    port = fleet.engine.server.server_address[1]
    targets = {m.id: Target(address(m.private_ip), port) for m in machines}
    found = gather(targets, partial(dcgm_scrape.read, at=datetime.now(UTC)), limits=Limits(node_s=0.5))
    return [found[m.id] for m in machines]


def values(told: Scrape, name: str) -> dict:
    return {r.gpu: r.value for r in told.readings if r.name == name}


@pytest.fixture
def broken(fleet):
    """Puts a fault on the first machine of `train`; it is well again afterwards."""
    machine = fleet.pool("train")[0]

    def make(code: str, gpu: int = 2):
        inject(fleet.world, machine, code, gpu)
        return scrape(fleet, machine)[0], machine.gpus[gpu]["uuid"]

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
    told, _ = broken("NVML_PROBE_HUNG")
    assert told == Failure("no whole answer within 0.5 s")
    clear(fleet.world, fleet.pool("train")[0], "NVML_PROBE_HUNG")
    told, _ = broken("NVML_LIB_RM_VERSION_MISMATCH")
    assert told == Failure("Connection refused")


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


def test_off_unless_asked_for(tmp_path):
    made = Fleet(tmp_path, pools=parse_pools("solo=template:1"))
    try:
        assert made.engine.exporters._thread is None
    finally:
        made.engine.stop()

"""Each code of the table shows what it says, and ends by what it says."""

from __future__ import annotations

import pytest

from healthboard.sandbox.faults import FAULTS, HOST, MOMENT, REBOOT, listing
from healthboard.sandbox.injure import BadInjection, after_move, after_reboot, check, clear, inject
from healthboard.sandbox.nodes.report import build
from tests.sandbox.conftest import Fleet

DEMANDED = [
    "XID_13",
    "XID_31",
    "XID_43",
    "XID_45",
    "XID_48",
    "XID_62",
    "XID_63",
    "XID_64",
    "XID_74",
    "XID_79",
    "XID_92",
    "XID_94",
    "XID_95",
    "XID_109",
    "XID_110",
    "XID_119",
    "XID_120",
    "XID_136",
    "XID_140",
    "XID_143",
    "XID_154",
    "ROW_REMAP_PENDING",
    "ROW_REMAP_FAILURE",
    "GPU_MISSING",
    "NVML_PROBE_HUNG",
    "NVML_LIB_RM_VERSION_MISMATCH",
    "GPU_HW_THERMAL_SLOWDOWN",
    "EC2_SYSTEM_IMPAIRED",
    "EC2_INSTANCE_IMPAIRED",
    "EC2_EBS_IMPAIRED",
    "EC2_EVENT_INSTANCE_RETIREMENT",
    "ECS_AGENT_DISCONNECTED",
    "ECS_CONTAINER_RUNTIME_IMPAIRED",
    "MONITORING_GAP",
    "EC2_SPOT_INTERRUPTION",
    "EC2_REBALANCE",
    "CAPACITY_BLOCK_ENDING",
    "UNKILLABLE_TASK",
    "REBOOT_SLOW",
    "NO_CAPACITY",
    "AGENT_BLINK",
    "DCGM_UNREACHABLE",
    "AWS_HEALTH_NOTICE",
]


def test_the_table_has_every_code_and_the_listing_names_verdict_and_cure():
    assert set(DEMANDED) <= set(FAULTS)
    lines = listing().splitlines()
    assert len(lines) == len(FAULTS) + 1
    for line, fault in zip(lines[1:], FAULTS.values(), strict=True):
        assert line.startswith(fault.code) and fault.verdict in line and fault.cure in line


@pytest.mark.parametrize("code", [c for c, f in FAULTS.items() if c.startswith("XID_")])
def test_an_xid_is_a_kernel_line_of_the_right_number_and_address(fleet: Fleet, code):
    one = fleet.pool("train")[0]
    inject(fleet.world, one, code, 5)
    lines = [line["text"] for line in one.kernel if "Xid" in line["text"]]
    assert lines[0].startswith(f"NVRM: Xid (PCI:{one.gpus[5]['pci']}): {code[4:]}, ") and "{" not in "".join(lines)
    assert [line["seq"] for line in one.kernel] == sorted({line["seq"] for line in one.kernel})


@pytest.mark.parametrize("code", [c for c, f in FAULTS.items() if c.startswith("XID_") and f.verdict == "HARDWARE"])
def test_an_xid_of_hardware_class_shows_in_nvml_too(fleet: Fleet, code):
    one = fleet.pool("train")[0]
    inject(fleet.world, one, code, 5)
    report = build(fleet.world, one, [])
    bad, good = report["gpus"][5], report["gpus"][4]
    assert bad["status"] == "lost" or bad["recovery_action"] in (1, 2) or bad["row_remap"]["failure"], (
        "no second witness"
    )
    assert (good["status"], good["recovery_action"], good["row_remap"]["failure"]) == ("ok", 0, False)


def test_clearing_restores_a_healthy_reading_and_154_says_none(fleet: Fleet):
    one = fleet.pool("train")[0]
    for code, fault in FAULTS.items():
        if fault.gpu or fault.nvml:
            inject(fleet.world, one, code, 2)
            clear(fleet.world, one, code)
    report = build(fleet.world, one, [])
    assert report["gpu_count"] == 8 and report["nvml"]["state"] == "ok"
    for gpu in report["gpus"]:
        assert (gpu["status"], gpu["recovery_action"], gpu["nvlink_down"]) == ("ok", 0, 0)
        assert not gpu["row_remap"]["pending"] and not gpu["row_remap"]["failure"]
    assert one.kernel[-1]["text"].endswith("from 0x2 (Node Reboot Required) to 0x0 (None)") or any(
        "to 0x0 (None)" in line["text"] for line in one.kernel
    )


def test_a_reboot_ends_what_a_reset_ends_and_a_new_host_ends_the_rest(fleet: Fleet):
    one = fleet.pool("train")[0]
    kept = [c for c, f in FAULTS.items() if f.ends in (REBOOT, HOST)]
    for code in kept:
        inject(fleet.world, one, code, 0)
    for code in (c for c, f in FAULTS.items() if f.ends == MOMENT):
        inject(fleet.world, one, code, 0)
    assert {f["code"] for f in one.faults} == set(kept)
    after_reboot(one)
    assert {f["code"] for f in one.faults} == {c for c in kept if FAULTS[c].ends == HOST}
    assert "XID_79" in {f["code"] for f in one.faults}
    after_move(one)
    assert one.faults == []


def test_a_lost_gpu_stays_lost_over_a_reboot_and_is_registered_no_more(fleet: Fleet):
    one = fleet.pool("solo")[0]
    inject(fleet.world, one, "XID_79", 3)
    fleet.ec2.reboot_instances(InstanceIds=[one.id])
    fleet.advance(30)
    report = build(fleet.world, one, [])
    assert report["gpu_count"] == 7 and report["gpus"][3]["status"] == "lost"
    assert one.gpus[3]["uuid"] not in fleet.container(one).gpus and len(fleet.container(one).gpus) == 7
    assert any("fallen off the bus and is not responding" in line["text"] for line in one.kernel)


def test_a_missing_gpu_is_neither_counted_nor_listed(fleet: Fleet):
    one = fleet.pool("solo")[0]
    inject(fleet.world, one, "GPU_MISSING", 1)
    report = build(fleet.world, one, [])
    assert report["gpu_count"] == 7 and [g["index"] for g in report["gpus"]] == [0, 2, 3, 4, 5, 6, 7]


def test_nothing_is_injected_when_one_of_the_named_cannot_be_meant(fleet: Fleet):
    worlds = list(fleet.engine.sandbox.worlds.values())
    good = fleet.pool("infer")[0].id
    for ids, code, gpu in (
        ([good, "i-0"], "XID_79", 0),
        ([good], "XID_999", 0),
        ([good], "XID_79", 4),
        ([good], "XID_79", -1),
        ([], "XID_79", 0),
    ):
        with pytest.raises(BadInjection):
            check(worlds, ids, code, gpu)


def test_a_retirement_event_is_completed_when_cleared(fleet: Fleet):
    one = fleet.pool("solo")[0]

    def events():
        row = fleet.ec2.describe_instance_status(InstanceIds=[one.id])["InstanceStatuses"][0]
        return [(e["Code"], e["Description"]) for e in row.get("Events", [])]

    assert events() == []
    inject(fleet.world, one, "EC2_EVENT_INSTANCE_RETIREMENT")
    assert events() == [("instance-retirement", "The instance is running on degraded hardware")]
    clear(fleet.world, one, "EC2_EVENT_INSTANCE_RETIREMENT")
    assert events() == [("instance-retirement", "[Completed] The instance is running on degraded hardware")]

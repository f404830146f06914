"""What a reading says when all is well, and what it doesn't say when it isn't known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from healthboard.api.node_schema import Report
from tests.node.machine import schema_errors
from workers.node import healthboard_node as node

SOURCE = (Path(__file__).parent / "nvml_double.c").read_text()
#: every call about one GPU that the double has, but for the one that only event listeners make
CALLS = [c for c in re.findall(r"^int (nvmlDevice\w+)\(struct gpu \*g", SOURCE, re.M) if "Events" not in c]
CODES = [*range(1, 31), 999]


def test_a_well_machine_is_read_whole_and_fits_the_schema(machine):
    machine.set(2, ecc="1 2 3 4", remap="5 6 1 0", replay=7, reasons=0x40, sram=1, recovery=4, links_down=1)
    report = machine.once()
    assert schema_errors(report, node.REPORT_SCHEMA) == []
    assert report["nvml"] == {"state": "ok", "code": 0, "detail": ""}
    assert (report["driver"], report["gpu_count"], report["efa"]) == (
        "580.95.05", 8, {"expected": None, "present": 32},
    )  # fmt: skip
    assert report["gpus"][0]["uuid"] == machine.uuid(0)
    assert report["gpus"][2] == {
        "index": 2, "uuid": machine.uuid(2), "serial": "1650000002", "name": "NVIDIA H100 80GB HBM3",
        "pci": "0000:3d:00", "status": "ok", "code": 0, "temperature_c": 45, "power_w": 310.2, "utilization_pct": 97,
        "memory_used_mib": 61000, "memory_total_mib": 81559,
        "ecc": {"volatile_corrected": 1, "volatile_uncorrected": 2, "aggregate_corrected": 3,
                "aggregate_uncorrected": 4, "sram_threshold": True},
        "row_remap": {"correctable": 5, "uncorrectable": 6, "pending": True, "failure": False},
        "recovery_action": 4, "clock_event_reasons": 0x40, "pcie_replay": 7, "nvlink_down": 1, "fabric_state": 3,
        "fabric_health": None, "fabric_status": 0,
    }  # fmt: skip


def _measured(gpu):
    """Every measurement that is not null, however deep."""
    flat = {k: gpu[k] for k in node.MEASUREMENTS}
    flat.update({f"ecc.{k}": v for k, v in gpu["ecc"].items()})
    flat.update({f"row_remap.{k}": v for k, v in gpu["row_remap"].items()})
    return {k: v for k, v in flat.items() if v is not None}


def test_what_is_not_supported_is_null_and_never_zero(machine, probe):
    machine.write(*(f"fail {call} 3" for call in CALLS if not call.endswith(("UUID", "Serial", "Name", "PciInfo_v3"))))
    reading = probe().read()
    assert [g["status"] for g in reading["gpus"]] == ["ok"] * 8
    assert [_measured(g) for g in reading["gpus"]] == [{}] * 8


@pytest.mark.parametrize("call", CALLS)
def test_every_error_code_of_every_call_is_taken_as_unknown_lost_or_reset(machine, probe, call):
    eye, mark = probe(), machine.mark()
    for code in CODES:
        machine.write(f"gpu 3 fail {call} {code}")
        reading = eye.read()
        machine.reset(mark)
        if code == 1:  # never initialised, however often it is tried
            assert (reading["state"], reading["code"]) == ("error", 1)
            continue
        want = {15: "lost", 16: "reset_required"}.get(code, "ok")
        gpu = reading["gpus"][3]
        assert (reading["state"], gpu["status"], len(reading["gpus"])) == ("ok", want, 8), code
        assert 0 not in [v for v in (gpu["temperature_c"], gpu["power_w"], gpu["utilization_pct"])], code
        assert all(g["status"] == "ok" and g["temperature_c"] == 45 for g in reading["gpus"] if g["index"] != 3), code


def test_every_error_code_at_the_handle_marks_this_gpu_only(machine, probe):
    eye, mark = probe(), machine.mark()
    for code in CODES:
        if code == 1:
            continue
        machine.set(5, handle=code)
        gpus = eye.read()["gpus"]
        machine.reset(mark)
        want = {15: "lost", 16: "reset_required"}.get(code, "error")
        assert (gpus[5]["status"], gpus[5]["code"]) == (want, code)
        assert [g["status"] for g in gpus].count("ok") == 7


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_at_the_start_of_the_library_has_its_state(machine, probe, code):
    machine.write(f"init {code}")
    reading = probe().read()
    states = {9: "driver_not_loaded", 12: "library_not_found", 18: "version_mismatch"}
    assert (reading["state"], reading["code"]) == (states.get(code, "error"), code)
    assert (reading["count"], reading["gpus"]) == (None, [])


def test_without_the_library_the_state_says_so(machine, probe, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "empty"))
    assert probe().read()["state"] == "library_not_found"


def test_without_pynvml_the_state_says_so(machine):
    machine.env["PYTHONPATH"] = str(machine.path / "shadow")
    (machine.path / "shadow").mkdir()
    (machine.path / "shadow/pynvml.py").write_text("raise ImportError('none here')")
    report = machine.once()
    assert report["nvml"]["state"] == "library_not_found"
    assert "nvidia-ml-py" in report["nvml"]["detail"]
    assert report["gpu_count"] is None


def test_a_driver_reload_is_followed_without_losing_a_reading(machine, probe):
    eye = probe()
    assert eye.read()["driver"] == "580.95.05"
    machine.write("generation 2", "driver 590.44.01")
    reading = eye.read()
    assert (reading["state"], reading["driver"], len(reading["gpus"])) == ("ok", "590.44.01", 8)


def test_strings_that_are_no_text_do_not_stop_the_reading(machine, probe):
    machine.set(1, name=r"NVIDIA\xff\xfe\x07H100", serial=r"\x80\x81")
    gpu = probe().read()["gpus"][1]
    assert gpu["name"].startswith("NVIDIA") and gpu["name"].endswith("H100")
    assert gpu["temperature_c"] == 45


def test_all_ones_is_no_number(machine, probe):
    machine.set(0, replay=0xFFFFFFFF, power=0xFFFFFFFF)
    gpu = probe().read()["gpus"][0]
    assert (gpu["pcie_replay"], gpu["power_w"]) == (None, None)


def test_links_of_a_card_without_a_bridge_are_no_fault(machine, probe):
    machine.set(0, links_up=0, links_down=12, fabric_state=0)
    machine.set(1, fail="nvmlDeviceGetNvLinkState 3")
    gpus = probe().read()["gpus"]
    assert (gpus[0]["nvlink_down"], gpus[0]["fabric_state"], gpus[1]["nvlink_down"]) == (None, None, None)


def test_links_that_cannot_be_read_are_not_known_to_be_up(machine, probe):
    machine.set(0, links_up=0)
    machine.set(1, fail="nvmlDeviceGetNvLinkState 999")
    machine.set(2, links_up=15, links_down=2, links_unread=1)
    machine.set(3, links_up=17, links_unread=1)
    gpus = probe().read()["gpus"]
    assert [g["nvlink_down"] for g in gpus[:5]] == [18, None, 2, None, 0]
    assert [g["_links"] for g in gpus[:5]] == [[0, 18], [0, 0], [15, 2], [17, 0], [18, 0]]


def test_a_number_that_the_server_could_not_take_is_none(machine, probe):
    machine.set(0, reasons=-1, ecc=f"{2**63} {2**64 - 1} {2**63 - 1} 4")  # -1: all ones
    gpu = probe().read()["gpus"][0]
    assert (gpu["clock_event_reasons"], [gpu["ecc"][name] for name in node.ECC_FIELDS[:4]]) == (
        None, [None, None, 2**63 - 1, 4],
    )  # fmt: skip
    Report.model_validate(machine.once())

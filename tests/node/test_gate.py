"""The admission gate: a bad machine never takes a task, and what can't be said is not a pass."""

from __future__ import annotations

import threading

import pytest


def _gate(machine, *args):
    status, out, err = machine.run("--gate", "--wait", "0", *args)
    assert out, err
    return status, out


def test_a_well_machine_is_admitted(machine):
    machine.env["HEALTHBOARD_INTERVAL"] = "60"  # too long for the service, and nothing to the gate
    status, out = _gate(machine)
    assert (status, out.splitlines()[-1]) == (0, "gate: admitted"), out
    assert "PASS gpu_count: 8 of 8 (p5.48xlarge)" in out
    assert "FAIL" not in out


@pytest.mark.parametrize(
    "broken, name",
    [
        ("count 7", "gpu_count"),
        ("count 0", "gpu_count"),
        ("gpu 2 handle 15", "gpu_status"),
        ("gpu 2 lost 1", "gpu_status"),
        ("gpu 2 remap 0 9 0 1", "row_remap"),
        ("gpu 2 recovery 1", "recovery_action"),
        ("gpu 2 sram 1", "sram"),
        ("gpu 2 links_down 2", "links"),
        ("gpu 2 links_up 0", "links"),
        ("gpu 2 fabric_state 2", "fabric"),
        ("gpu 2 fabric_status 999", "fabric"),
        ("gpu 2 fabric_mask 1", "fabric"),
        ("init 9", "nvml"),
        ("init 18", "nvml"),
        ("init crash", "nvml"),
        ("gpu 0 hang nvmlDeviceGetUUID", "nvml"),
    ],
)
def test_a_bad_machine_is_refused_with_the_reason(machine, broken, name):
    machine.env.update(HEALTHBOARD_NVML_TIMEOUT="1", HEALTHBOARD_NVML_INIT_TIMEOUT="1")
    machine.write(broken)
    status, out = _gate(machine)
    assert (status, out.splitlines()[-1]) == (1, "gate: refused")
    assert f"FAIL {name}: " in out


@pytest.mark.parametrize("code", [3, 13, 999])
def test_links_that_cannot_be_read_are_no_fault_and_no_pass(machine, code):
    machine.set(2, fail=f"nvmlDeviceGetNvLinkState {code}")
    status, out = _gate(machine)
    assert (status, f"SKIP links: not read: GPU 2 {machine.uuid(2)}\n" in out) == (0, True), out


def test_links_that_are_all_down_are_a_fault_where_there_is_no_fabric(machine):
    machine.env["HEALTHBOARD_INSTANCE_TYPE"] = "p4d.24xlarge"
    for gpu in range(8):
        machine.set(gpu, fabric_state=0)
    assert "PASS links: all links up" in _gate(machine)[1]
    machine.set(2, links_up=0, links_down=12)
    status, out = _gate(machine)
    assert (status, f"FAIL links: GPU 2 {machine.uuid(2)}: none of 12 NVLinks is up" in out) == (1, True), out


def test_the_healthy_value_of_a_mask_and_a_pending_remap_are_admitted(machine):
    machine.set(0, fabric_mask=0x80, remap="1 1 1 0")
    assert _gate(machine)[0] == 0


def test_condemned_hardware_is_refused_by_uuid_and_by_serial(machine):
    (machine.path / "condemned").write_text(f"# sent away in May\n{machine.uuid(4).upper()}  # row remap\n")
    status, out = _gate(machine)
    assert (status, f"FAIL condemned: GPU 4 {machine.uuid(4)}" in out) == (1, True)
    (machine.path / "other").write_text("1650000006\n")
    status, out = _gate(machine, "--condemned", str(machine.path / "other"))
    assert (status, "GPU 6" in out) == (1, True)


def test_a_gpu_that_fell_off_the_bus_since_boot_is_refused(machine):
    machine.say("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", 5)
    status, out = _gate(machine)
    assert (status, "FAIL kernel_log" in out) == (1, True)


def test_the_expectation_may_be_given(machine):
    assert _gate(machine, "--expect", "4")[0] == 1
    machine.write("count 4")
    for i in range(4, 8):
        for f in ("vendor", "class"):
            (machine.path / f"sys/bus/pci/devices/0000:{0x3B + i:02x}:00.0/{f}").unlink()
    assert _gate(machine, "--expect", "4")[0] == 0


def test_a_gpu_on_the_bus_that_nvml_does_not_show_is_refused_on_an_unknown_type(machine):
    machine.env["HEALTHBOARD_INSTANCE_TYPE"] = "p9.48xlarge"
    assert _gate(machine)[0] == 0
    machine.write("count 7")
    status, out = _gate(machine)
    assert (status, "FAIL pci: 8 of 7 on the bus" in out) == (1, True)


def test_a_machine_without_gpus_is_admitted_and_a_gpu_machine_without_driver_is_not(machine):
    machine.write("init 9")
    machine.env.update(HEALTHBOARD_INSTANCE_TYPE="m7i.large", HEALTHBOARD_SYSFS=str(machine.path / "bare"))
    (machine.path / "bare/bus/pci/devices").mkdir(parents=True)
    assert _gate(machine)[0] == 0
    machine.env["HEALTHBOARD_SYSFS"] = str(machine.path / "blind")  # the bus can't be seen: not known to be without
    assert _gate(machine)[0] == 1


def test_the_quick_diagnostic_counts_if_it_ran(machine):
    machine.tool("dcgmi", "exit 0")
    assert "PASS dcgm" in _gate(machine)[1]
    machine.tool("dcgmi", 'echo "| Deployment | Fail |"; exit 1')
    assert _gate(machine)[0] == 1
    assert _gate(machine, "--no-diag")[0] == 0


def test_it_waits_for_a_driver_that_is_still_starting(machine):
    mark = machine.mark()
    machine.write("init 9")
    timer = threading.Timer(0.7, lambda: machine.reset(mark))
    timer.start()
    status, out, _ = machine.run("--gate", "--wait", "20")
    timer.join()
    assert (status, out.splitlines()[-1]) == (0, "gate: admitted")


def test_it_starts_the_library_anew_as_long_as_it_waits_for_a_gpu(machine):
    """Which only a fresh start of it sees come back."""
    machine.set(2, handle=15)
    assert machine.run("--gate", "--wait", "1.2")[0] == 1
    assert machine.inits() >= 3


def test_hardware_that_the_server_knows_as_broken_is_refused_also_while_it_is_away(machine, server):
    machine.env.update(HEALTHBOARD_URL=server.url, HEALTHBOARD_NODE_TOKEN="hbn_test")
    bad = {"uuid": machine.uuid(2), "serial": "1650000002", "why": "XID_79, repair 4"}
    server.condemned = [bad]
    status, out = _gate(machine)
    assert (status, f"FAIL condemned_server: {bad['uuid']} (XID_79, repair 4)" in out) == (1, True), out
    path, token, asked = server.asked[0]
    assert (path, token, len(asked["gpus"])) == ("/api/v1/node/condemned", "Bearer hbn_test", 8)
    assert asked["gpus"][2] == {"uuid": machine.uuid(2), "serial": "1650000002"}

    machine.env["HEALTHBOARD_URL"] = "http://127.0.0.1:1"  # nobody listens: what it said last still counts
    status, out = _gate(machine)
    assert (status, "(kept; now: ConnectionRefusedError" in out) == (1, True), out

    machine.env["HEALTHBOARD_URL"] = server.url
    server.condemned = []  # a person lifted it
    assert _gate(machine)[0] == 0


def test_without_an_answer_about_this_hardware_the_gate_says_so_and_decides_on_the_rest(machine):
    machine.env.update(HEALTHBOARD_URL="http://127.0.0.1:1", HEALTHBOARD_NODE_TOKEN="hbn_test")
    status, out = _gate(machine)
    assert (status, "SKIP condemned_server: the server did not say: ConnectionRefusedError" in out) == (0, True), out

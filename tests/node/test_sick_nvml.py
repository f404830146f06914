"""A driver that hangs, crashes or changes: signals of their own, and no storm of children."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from workers.node import healthboard_node as node

ROOT = Path(node.__file__).parents[2]


def test_a_hang_is_told_within_the_limit_with_its_place(machine, probe):
    machine.set(3, hang="nvmlDeviceGetRemappedRows")
    eye = probe(HEALTHBOARD_NVML_INIT_TIMEOUT="1", HEALTHBOARD_NVML_TIMEOUT="0.5")
    began = time.monotonic()
    reading = eye.read()
    assert reading["state"] == "hung"
    assert f"GPU 3 {machine.uuid(3)}" in reading["detail"]
    assert time.monotonic() - began < 5


def test_a_hang_in_the_library_itself_is_told(machine, probe):
    machine.write("init hang")
    reading = probe(HEALTHBOARD_NVML_INIT_TIMEOUT="0.5", HEALTHBOARD_NVML_TIMEOUT="0.5").read()
    assert (reading["state"], "nvmlInit" in reading["detail"]) == ("hung", True)


def test_with_a_bad_gpu_the_library_is_started_anew_once_and_may_take_its_time(machine, probe):
    eye = probe(HEALTHBOARD_NVML_INIT_TIMEOUT="9", HEALTHBOARD_NVML_TIMEOUT="1")
    assert (eye.read()["state"], machine.inits()) == ("ok", 1)
    machine.set(3, handle=15)
    machine.write("init slow 1700")
    told = [(reading["state"], reading["gpus"][3]["status"]) for reading in (eye.read() for _ in range(4))]
    assert (told, machine.inits()) == ([("ok", "lost")] * 4, 2)
    assert (eye.read(anew=True)["state"], machine.inits()) == ("ok", 3)
    machine.set(0, hang="nvmlDeviceGetUUID")
    assert "no answer within 1 s" in eye.read()["detail"]  # what is no start of the library keeps its own limit


READER = """
import os, time
import pynvml
from workers.node import healthboard_node as node
reader = node.NvmlReader(pynvml, lambda where: None)
for now in (0, 1, 2, 301, 302, 303):
    time.monotonic = lambda: now
    reader.read()
    print(os.stat(os.environ["NVML_DOUBLE_INITS"]).st_size)
"""


def test_with_a_gpu_that_stays_bad_the_library_is_started_anew_every_few_minutes(machine):
    machine.set(3, lost=1)
    done = subprocess.run(
        [sys.executable, "-c", READER], env=machine.env, cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert [int(n) for n in done.stdout.split()] == [1, 2, 2, 2, 3, 3], done.stderr


@pytest.mark.parametrize("where", ["gpu 6 crash nvmlDeviceGetTemperature", "init crash"])
def test_a_crash_is_told_with_its_signal(machine, probe, where):
    machine.write(where)
    reading = probe().read()
    assert (reading["state"], reading["code"]) == ("crashed", 139)
    assert "SIGSEGV" in reading["detail"]


def test_after_a_crash_the_probe_comes_back_when_the_driver_is_well_again(machine, probe):
    mark = machine.mark()
    machine.set(6, crash="nvmlDeviceGetTemperature")
    eye = probe()
    assert eye.read()["state"] == "crashed"
    machine.reset(mark)
    deadline = time.monotonic() + 5
    while (reading := eye.read())["state"] != "ok" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (reading["state"], len(reading["gpus"])) == ("ok", 8)


def test_the_pause_between_children_doubles_and_their_number_is_bounded(machine, probe):
    machine.write("init crash")
    eye = probe(HEALTHBOARD_NVML_RESPAWN="50")
    pauses = []
    for _ in range(4):
        assert eye.read()["state"] == "crashed"
        pauses.append(eye.not_before - time.monotonic())
        assert eye.read()["state"] == "crashed"  # within the pause: the same trouble, and no child
        assert len(eye.started) == len(pauses)
        eye.not_before = 0.0  # as if the pause were over
    assert [round(p, -1) for p in pauses] == [50, 100, 200, 400]
    for _ in range(node.NvmlProbe.PER_HOUR * 2):
        eye.not_before = 0.0
        assert eye.read()["state"] == "crashed"
    assert len(eye.started) == node.NvmlProbe.PER_HOUR
    assert eye.proc is None


class Unkillable(node.NvmlProbe):
    """SIGKILL does nothing to a process in uninterruptible sleep."""

    def _kill(self, proc):
        self.victim = proc


def test_a_child_that_cannot_be_killed_blocks_nobody_and_gets_no_sibling(machine):
    mark = machine.mark()
    machine.set(0, hang="nvmlDeviceGetUUID")
    machine.env.update(HEALTHBOARD_NVML_INIT_TIMEOUT="0.4", HEALTHBOARD_NVML_TIMEOUT="0.4")
    eye = Unkillable(node.Settings(machine.env))
    try:
        assert eye.read()["state"] == "hung"
        machine.reset(mark)
        eye.not_before = 0.0
        began = time.monotonic()
        assert [eye.read()["state"] for _ in range(5)] == ["hung"] * 5
        assert time.monotonic() - began < 1.5  # five limits of 0.4 s would be 2
        assert len(eye.started) == 1
        eye.close()
        eye.victim.kill()
        eye.victim.wait(5)
        assert eye.read()["state"] == "ok"  # it went after all: now there may be another
    finally:
        eye.victim.kill()
        eye.victim.wait(5)
        node.NvmlProbe._kill(eye, eye.proc) if eye.proc else None
        eye.close()


def test_after_a_mismatch_a_fresh_child_loads_the_library_that_is_installed_now(machine, probe):
    mark = machine.mark()
    machine.write("init 18")
    eye = probe()
    assert eye.read()["state"] == "version_mismatch"
    assert eye.read()["state"] == "version_mismatch"
    machine.reset(mark)
    deadline = time.monotonic() + 5
    while (reading := eye.read())["state"] != "ok" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reading["state"] == "ok"
    assert len(eye.started) == 2


def test_a_child_that_has_left_before_it_was_asked_again_is_no_trouble(machine, probe):
    machine.write("init 18")
    eye = probe()
    assert eye.read()["state"] == "version_mismatch"
    eye.proc.wait(5)  # the question finds nobody
    assert eye.read()["state"] == "version_mismatch" and eye.proc is None


def test_an_urgent_report_does_not_wait_for_a_slow_driver(machine, probe, monkeypatch):
    machine.set(0, hang="nvmlDeviceGetUUID")
    eye = probe(HEALTHBOARD_NVML_INIT_TIMEOUT="1")
    reading = eye.read(wait_s=0.1)
    assert node.is_pending(reading)
    assert (reading["code"], "no answer yet" in reading["detail"]) == (node.NOT_YET, True)
    reading = eye.read()
    assert (reading["state"], node.is_pending(reading)) == ("hung", False)


def test_the_report_of_an_xid_does_not_wait_for_a_driver_that_hangs(machine, server, reporter, monkeypatch):
    reporter(server, HEALTHBOARD_NVML_TIMEOUT="5")
    server.wait(lambda r: r["gpu_count"] == 8)
    machine.set(0, hang="nvmlDeviceGetUUID")
    time.sleep(0.5)
    machine.say("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=t, Timeout after 45s of waiting for RPC", 7)
    report = server.wait(lambda r: r["kernel"])
    assert (report["nvml"]["state"], "no answer yet" in report["nvml"]["detail"]) == ("ok", True)
    server.wait(lambda r: r["nvml"]["state"] == "hung", 12)


def test_the_child_does_not_get_the_credential(machine, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_NODE_TOKEN", "secret")
    monkeypatch.setenv("HEALTHBOARD_NODE_TOKEN_FILE", "/etc/secret")
    assert not [k for k in node.clean_env() if "TOKEN" in k]


LISTENER = """
import pynvml as n
n.nvmlInit()
events = n.nvmlEventSetCreate()
for i in range(n.nvmlDeviceGetCount()):
    n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(i), n.nvmlEventTypeXidCriticalError, events)
seen = n.nvmlEventSetWait(events, 5000)
print(n.nvmlDeviceGetUUID(seen.device), seen.eventType, seen.eventData, hex(seen.gpuInstanceId))
try:
    n.nvmlEventSetWait(events, 50)
except n.NVMLError as e:
    print(e.value)
"""


def test_the_double_raises_xid_events_as_the_library_does(machine):
    machine.set(5, xid=79)
    done = subprocess.run([sys.executable, "-c", LISTENER], env=machine.env, capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == [f"{machine.uuid(5)} 8 79 0xffffffff", "10"], done.stderr

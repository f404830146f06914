"""One verb of a closed list, each request once, never a shell."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.node.machine import schema_errors
from workers.node import healthboard_node as node


def _ask(server, *requests):
    with server.changed:
        server.requests += [{"id": i, "verb": v} for i, v in requests]


def _result(server, request):
    report = server.wait(lambda r: any(x["request"] == request for x in r["results"]), 20)
    assert schema_errors(report, node.REPORT_SCHEMA) == []
    return next(x for x in report["results"] if x["request"] == request)


def _by_name(result):
    return {c["name"]: c["ok"] for c in result["checks"]}


def test_diagnose_1_says_what_it_looked_at(machine, server, reporter):
    reporter(server)
    _ask(server, ("17", "diagnose-1"))
    result = _result(server, "17")
    checks = _by_name(result)
    assert result["verb"] == "diagnose-1"
    assert (checks["gpu_count"], checks["row_remap"], checks["links"]) == (True, True, True)
    assert checks["dcgm"] is None  # not installed: that is no word about the GPUs
    assert checks["kernel_log"] is True


def test_diagnose_1_finds_what_is_broken(machine, server, reporter):
    machine.set(4, remap="0 9 0 1", recovery=2)
    machine.set(5, handle=15)
    machine.say("NVRM: Xid (PCI:0000:3b:00): 95, pid=1, name=t, Uncontained ECC error", 5)
    machine.tool("dcgmi", 'echo "| Memory | Fail |"; echo "args: $*"; exit 3')
    reporter(server)
    _ask(server, ("18", "diagnose-1"))
    result = _result(server, "18")
    checks = _by_name(result)
    bad = {name for name, ok in checks.items() if ok is False}
    assert bad == {"gpu_count", "gpu_status", "row_remap", "recovery_action", "kernel_log", "dcgm"}
    assert (result["ok"], result["exit"]) == (False, 1)
    assert "args: diag -r 1" in result["output"]
    assert "Xid 95 x1" in result["output"]


def test_diagnose_2_runs_the_longer_diagnostic_or_says_that_there_is_none(machine, server, reporter):
    reporter(server)
    _ask(server, ("1", "diagnose-2"))
    result = _result(server, "1")
    assert (result["ok"], result["exit"], "not installed" in result["output"]) == (None, None, True)
    machine.tool("dcgmi", 'echo "args: $*"')
    _ask(server, ("2", "diagnose-2"))
    result = _result(server, "2")
    assert (result["ok"], result["exit"], result["output"]) == (True, 0, "args: diag -r 2\n")


def test_a_diagnostic_that_could_not_run_is_no_failure(machine, monkeypatch):
    machine.tool("dcgmi", 'echo "Error: unable to establish a connection to the specified host: localhost"; exit 255')
    monkeypatch.setenv("PATH", machine.env["PATH"])
    found, status, _ = node.dcgm_diag(1, 5)
    assert (found["ok"], status) == (None, 255)


def test_bug_report_is_bounded_and_holds_no_credential(machine, server, reporter):
    for seq in range(300):
        machine.say(f"NVRM: Xid (PCI:0000:3b:00): 31, {seq} " + "x" * 900, seq)
    reporter(server, HEALTHBOARD_NODE_TOKEN="very-secret-token")
    _ask(server, ("3", "bug-report"))
    result = _result(server, "3")
    assert len(result["output"].encode()) <= 64 * 1024
    assert "very-secret-token" not in result["output"]
    assert machine.uuid(0) in result["output"]


def test_each_request_is_run_once_even_over_a_restart(machine, server, reporter):
    machine.tool("dcgmi", f"echo run >> {machine.path}/runs")
    first = reporter(server)
    _ask(server, ("7", "diagnose-2"), ("7", "diagnose-2"))
    _result(server, "7")
    _ask(server, ("7", "diagnose-2"))
    _ask(server, ("8", "diagnose-2"))
    _result(server, "8")
    first.send_signal(signal.SIGTERM)
    first.wait(5)
    reporter(server)
    _ask(server, ("7", "diagnose-2"), ("9", "diagnose-2"))
    _result(server, "9")
    assert (machine.path / "runs").read_text().count("run") == 3


def test_a_request_that_a_restart_interrupted_is_answered(machine, server, reporter):
    machine.tool("dcgmi", "exec sleep 60")
    first = reporter(server)
    _ask(server, ("5", "diagnose-2"))
    deadline = time.monotonic() + 5
    while not node.read_json(str(machine.path / "state/state.json")).get("requests") and time.monotonic() < deadline:
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    first.wait(5)
    reporter(server)
    result = _result(server, "5")
    assert (result["ok"], "restarted" in result["output"]) == (None, True)


def test_anything_else_is_ignored_and_counted(tmp_path):
    ran = []
    requests = node.Requests(lambda: None, node.Store(None, "b"), lambda: None)
    requests.perform = ran.append
    bad = [
        {"id": "1", "verb": "reboot"}, {"id": "2", "verb": "diagnose-1; reboot"}, {"id": "3", "verb": None},
        {"id": "4", "verb": "diagnose-1", "args": ["-x"]}, {"id": 5, "verb": "diagnose-1"}, {"verb": "diagnose-1"},
        {"id": "../../x y", "verb": "diagnose-1"}, "diagnose-1", None, {"id": "6", "verb": ["diagnose-1"]},
    ]  # fmt: skip
    requests.offer(bad)
    requests.offer("diagnose-1")
    assert (requests.ignored, len(requests.queue)) == (len(bad) + 1, 0)
    requests.offer([{"id": "9", "verb": "diagnose-1"}])
    assert list(requests.queue) == [("9", "diagnose-1")]


def test_no_shell_is_ever_used():
    source = Path(node.__file__).read_text()
    for word in ("shell=True", "os.system", "os.popen", "getoutput", "eval(", "exec("):
        assert word not in source


def test_a_command_that_does_not_end_is_cut_off():
    began = time.monotonic()
    status, text = node.run_command(["sleep", "30"], 0.3)
    assert (status, "did not end" in text) == (None, True)
    assert time.monotonic() - began < 5
    status, text = node.run_command(["yes"], 10)
    assert status is None
    assert len(text) <= node.OUTPUT_LIMIT

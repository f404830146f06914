"""The command: one JSON object, exit codes, many lines at once."""

import json
import subprocess
import sys
import tracemalloc

import pytest

from healthboard.diagnosis.explain import Unreadable, explain
from healthboard.diagnosis.formats import FORMATS

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
KEYS = {"code", "verdict", "action", "scope", "instance", "gpu", "count", "first", "last", "rule", "why", "sources"}


def run(*args, text=""):
    done = subprocess.run(
        [sys.executable, "manage.py", "explain", *args],
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_it_prints_one_object_and_needs_no_database():
    code, out, err = run("-", "--instance", "i-1", text=XID)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["verdict"], found["action"], found["codes"]) == ("HARDWARE", "REPLACE", ["XID_79"])
    (finding,) = found["findings"]
    assert finding.keys() >= KEYS
    assert (finding["gpu"], finding["instance"], finding["scope"], finding["first"]) == (
        "0000:3b:00",
        "i-1",
        "gpu",
        None,
    )


@pytest.mark.parametrize("text", ["", "   \n", "hello, world", "\0\1\2"])
def test_what_is_not_readable_gives_one_line_and_exit_2(text):
    code, out, err = run("-", text=text)
    assert (code, out) == (2, "") and err.count("\n") == 1


def test_a_file_that_is_not_there_gives_one_line_and_exit_2():
    code, _, err = run("/no/such/file")
    assert code == 2 and err.count("\n") == 1


def test_many_lines_give_one_object_each_and_a_bad_one_its_error():
    lines = [json.dumps({"id": "a", "kind": "kernel-log", "text": XID}), "nonsense", json.dumps({"id": "c", "kind": "new", "text": XID}),
             json.dumps({"id": "d", "text": 5})]  # fmt: skip
    code, out, _ = run("--jsonl", "-", text="\n".join(lines))
    rows = [json.loads(row) for row in out.splitlines()]
    assert code == 2 and [r["id"] for r in rows] == ["a", None, "c", "d"]
    assert [("error" in r) for r in rows] == [False, True, False, True]
    code, _, _ = run("--jsonl", "-", text=lines[0])
    assert code == 0


@pytest.mark.parametrize("format_", FORMATS)
def test_an_unknown_text_never_becomes_hardware(format_):
    try:
        found = explain("The quick brown fox jumps over the lazy dog, 79 times.", format_)
    except Unreadable:
        return
    assert found["verdict"] == "HEALTHY" and found["codes"] == []


def test_a_quiet_log_is_healthy():
    quiet = "[    1.0] usb 1-1: new device\n[    2.0] eth0: link up"
    assert explain(quiet)["verdict"] == explain(quiet, "kernel-log")["verdict"] == "HEALTHY"


def test_times_of_a_dated_log_are_shown():
    (finding,) = explain("[Tue Mar 10 22:41:05 2026] " + XID)["findings"]
    assert finding["first"] == "2026-03-10T22:41:05+00:00"


def test_ignored_rows_say_what_was_left_out():
    text = (
        XID
        + "NVRM: kgspRcAndNotifyAllChannels_IMPL: RC all channels\nMar 1 01:01:01 host app[1]: saw NVRM: Xid (PCI:0000:3b:00): 48, x"
    )
    found = explain(text, "kernel-log")
    assert found["codes"] == ["XID_79"] and len(found["ignored"]) == 2
    assert all(row.keys() == {"reason", "count", "example"} for row in found["ignored"])


def test_a_loss_before_a_reboot_is_no_code_of_the_running_boot():
    text = (
        f"[9000.0] {XID}[    0.000000] Linux version 6.8.0\n[   10.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=x, y"
    )
    assert explain(text)["codes"] == ["XID_31"]


def test_a_note_that_many_nodes_show_it_is_one_incident():
    text = "On one day 41 of 420 nodes, all on one driver version, log:\n" + XID.replace("79", "119")
    assert (explain(text)["verdict"], explain(text)["action"]) == ("CORRELATED", "HOLD")


@pytest.mark.parametrize("many", ["41", "5,000", "999,999"])
def test_however_many_nodes_a_note_tells_of_they_are_one_incident(many):
    text = f"On one day {many} of 9,999,999 nodes, all on one driver version, log:\n" + XID.replace("79", "119")
    tracemalloc.start()
    try:
        assert (explain(text)["verdict"], explain(text)["action"]) == ("CORRELATED", "HOLD")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("many", ["1,000,000", "9" * 21])
@pytest.mark.parametrize("said", ["{} of {} nodes", "{} nodes of {}"])
def test_a_number_that_no_fleet_has_counts_no_nodes(many, said):
    text = f"On one day {said.format(many, many)}, all on one driver version, log:\n" + XID.replace("79", "119")
    assert explain(text)["verdict"] == "AMBIGUOUS"


@pytest.mark.parametrize("digits", [7, 12, 5_000])
def test_a_time_that_nobody_waited_is_none(digits):
    found = explain(
        f"The system status check is impaired, and has been for {'9' * digits} minutes, nothing else is known of it."
    )
    assert found["codes"] == ["EC2_SYSTEM_IMPAIRED"]

"""The kernel log: only lines of interest, whole bodies, each once, and a lost record is said."""

from __future__ import annotations

import errno
import os
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.node import healthboard_node as node

XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@pytest.fixture
def follow(machine):
    made = []

    def start(cursor=None, path=None, on_urgent=lambda: None):
        made.append(node.Kmsg(str(path or machine.kmsg), cursor, on_urgent))
        made[-1].start()
        assert made[-1].caught_up.wait(5)
        return made[-1]

    yield start
    for each in made:
        each.stopping = True
        each.join(3)


def _texts(log):
    return [x["text"] for x in log.take()[0]]


def test_lines_of_interest_are_kept_and_others_are_not(machine, follow):
    keep = [
        XID79,
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 29 LTSSM Fault Up",
        "pcieport 0000:3a:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0",
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2028)",
    ]
    for i, text in enumerate([*keep, "EXT4-fs (nvme0n1p1): mounted", "foo: NVRM: Xid (PCI:0000:3b:00): 79, no"]):
        machine.say(text, 100 + i)
    assert _texts(follow()) == keep


def test_a_record_has_its_sequence_facility_level_and_wall_time(machine, follow):
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    machine.say(XID79, 1234, facility=1, level=4, micros=int((now - 60) * 1e6))
    line = follow().take()[0][0]
    assert (line["seq"], line["facility"], line["level"], line["text"]) == (1234, 1, 4, XID79)
    assert abs(node.time.mktime(time.strptime(line["at"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
               - (time.time() - 60)) < 3  # fmt: skip


def test_the_stack_trace_of_a_gsp_timeout_stays_with_it(machine, follow):
    body = [
        "NVRM: Xid (PCI:0000:3b:00): 119, pid=4242, name=train, Timeout after 45s of waiting for RPC response from GPU0",
        "NVRM: GPU0 GSP RPC buffer contains function 4098 (GSP_INIT_DONE) and data 0x0 0x0.",
        "CPU: 12 PID: 4242 Comm: train Tainted: P           OE      6.1.0 #1",
        "Call Trace:", " <TASK>", " dump_stack_lvl+0x33/0x46", " </TASK>",
    ]  # fmt: skip
    for i, text in enumerate(body):
        machine.say(text, 10 + i)
    machine.say(" a line much later", 90, micros=9_000_000)
    machine.say("CPU: 3 PID: 1 Comm: other", 91, micros=9_000_100)
    assert _texts(follow()) == body


def test_a_later_line_is_seen_and_an_urgent_one_calls(machine, follow):
    called = threading.Event()
    log = follow(on_urgent=called.set)
    machine.say("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", 1)
    assert not called.wait(0.5)
    machine.say(XID79, 2, facility=1)  # written by a user: never a reason to hurry
    assert not called.wait(0.5)
    machine.say(XID79, 3)
    assert called.wait(3)
    assert len(log.take()[0]) == 3


def test_a_restart_loses_no_line_and_sends_none_twice_under_another_number(machine, follow):
    for seq in (5, 6, 7):
        machine.say(f"{XID79} {seq}", seq)
    log = follow()
    lines, overrun, cursor, _ = log.take(limit=2)
    assert ([x["seq"] for x in lines], overrun, cursor) == ([5, 6], False, 6)
    machine.say(f"{XID79} 8", 8)
    again = follow(cursor)
    assert [x["seq"] for x in again.take()[0]] == [7, 8]
    assert again.snapshot()[1] == {79: 4}  # what the checks see is the whole boot


def test_a_gap_after_a_restart_is_an_overrun(machine, follow):
    machine.say(XID79, 50)
    assert follow(cursor=49).take()[1] is False
    assert follow(cursor=40).take()[1] is True


def test_an_overwritten_buffer_is_an_overrun_and_reading_goes_on(machine, follow, monkeypatch):
    machine.say(XID79, 1)
    real, pending = os.read, [OSError(errno.EPIPE, "Broken pipe")]

    def read(fd, size):
        if pending:
            raise pending.pop()
        return real(fd, size)

    monkeypatch.setattr(node.os, "read", read)
    lines, overrun, _, _ = follow().take()
    assert (len(lines), overrun) == (1, True)


def test_a_log_that_cannot_be_read_is_unknown_and_not_quiet(machine, follow):
    log = follow(path=machine.path / "nowhere")
    assert log.take()[:2] == ([], True)


def test_a_fifo_is_followed(machine, follow):
    fifo = machine.path / "fifo"
    os.mkfifo(fifo)
    seen = threading.Event()
    log = follow(path=fifo, on_urgent=seen.set)
    with open(fifo, "w") as f:
        f.write(f"3,9,1000,-;{XID79}\n")
    assert seen.wait(3)
    assert _texts(log) == [XID79]


def test_this_machines_own_kernel_log_is_read(follow):
    log = follow(path="/dev/kmsg")
    assert log.blind or (log.last_seq is not None and log.last_seq > 0)


def test_a_flood_is_bounded_and_says_that_lines_were_lost(machine):
    log = node.Kmsg("unused")
    for i in range(100_000):
        log._record(b"3,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): 95, pid=1, name=t, the same" % (i, i))
    assert len(log.pending) == node.SAME_LINE_PER_REPORT
    assert log.take()[1] is False  # repeats of one text are no loss
    for i in range(100_000, 110_000):
        log._record(b"3,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=%d, name=t, other" % (i, i, i))
    assert len(log.pending) == node.KERNEL_PENDING
    lines, overrun, cursor, more = log.take()
    assert (len(lines), overrun, more, cursor) == (node.KERNEL_PER_REPORT, True, True, lines[-1]["seq"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=80), st.from_regex(rb"\A\d{1,3},\d{1,6},\d{1,9},[-c];NVRM: .{0,30}\Z"))))
def test_no_record_breaks_the_reader_and_sequences_only_grow(records):
    log = node.Kmsg("unused")
    for record in records:
        log._record(record)
    sequences = [x["seq"] for x in log.take()[0]]
    assert sequences == sorted(set(sequences))


def test_the_lines_of_one_report_have_a_bound_in_bytes():
    log = node.Kmsg("unused")
    for i in range(400):
        log._record(b"3,%d,%d,-;NVRM: %d " % (i, i, i) + b"\xff" * 3000)
    lines, _, cursor, more = log.take()
    assert 0 < len(node.json.dumps(lines)) < node.KERNEL_BYTES + 30_000
    assert (more, cursor) == (True, lines[-1]["seq"])


def test_a_line_feed_in_a_process_name_begins_no_line(machine, follow):
    machine.say(r"NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=a\x0aNVRM: Xid (PCI:0000:3c:00): 79, b", 3)
    (text,) = _texts(follow())
    assert "\n" not in text

"""Forms and traps of the kernel log."""

import json

import pytest

from healthboard.diagnosis.kernel_log import KernelLog, parse
from healthboard.diagnosis.kernel_prefix import read_prefix

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=12, name=train, GPU has fallen off the bus."
PREFIXES = {
    "": "kernel",
    "[733208.410125] ": "kernel",
    "[    0.1] ": "kernel",
    "[Tue Mar 10 22:41:05 2026] ": "kernel",
    "[...] ": "kernel",
    "kern  :warn  : 2026-05-19T13:20:07,610338+00:00 ": "kernel",
    "kern  :err   : [Tue Mar 10 22:41:05 2026] ": "kernel",
    "kernel: ": "kernel",
    "kernel: [30417.204558] ": "kernel",
    "Mar 10 22:41:05 ip-10-1-2-3 kernel: ": "kernel",
    "Mar  1 02:01:05 host kernel: [  12.5] ": "kernel",
    "wrz 22 04:13:08 host kernel: ": "kernel",
    "2026-03-10T22:41:05.123456+00:00 host kernel: ": "kernel",
    "4,1234,733208410117,-;": "kernel",
    "<4>": "kernel",
    "<4>[  12.5] ": "kernel",
    "/var/log/messages:Mar 10 22:41:05 host kernel: ": "kernel",
    "> ": "kernel",
    "12,1234,733208410117,-;": "user",
    "<12>": "user",
    "user  :notice: [Tue Mar 10 22:41:05 2026] ": "user",
    "daemon:info: 2026-05-19T13:20:07,610338+00:00 ": "user",
    "Mar 10 22:41:05 host root: ": "user",
    "Mar 10 22:41:05 host trainer[4242]: ": "user",
    "2026-03-10T22:41:05Z host app[1]: ": "user",
    "the log says ": "quoted",
    "Mar 10 22:41:05 host app[1]: saw ": "quoted",
    'level=info msg="': "quoted",
}


@pytest.mark.parametrize(("prefix", "writer"), PREFIXES.items())
def test_a_message_counts_only_behind_a_prefix_that_the_kernel_writes(prefix, writer):
    assert read_prefix(prefix).writer == writer
    codes = {e.code for e in parse(prefix + XID).events}
    assert codes == {"kernel": {"XID_79"}, "user": {"LOG_INJECTION_SUSPECTED"}, "quoted": set()}[writer]


FORMS = [
    ("NVRM: Xid (PCI:0000:3b:00): 95, pid=4242, name=train, Uncontained", "XID_95", {"pid": 4242, "name": "train"}),
    ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen", "XID_79", {}),
    ("NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, Ch 0000000f", "XID_31", {}),
    ("NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, Ch 0000000f", "XID_31", {"pid": 4242}),
    ("NVRM: Xid (PCI:0000:3b:00): 13, Ch 0000002a", "XID_13", {}),
    ("NVRM: Xid (0000:3b:00): 31, Ch 0000002a", "XID_31", {}),
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:03): 13, pid=1, name=x, y", "XID_13", {"mig": "GPU-I:03"}),
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:03 GPU-CI:01): 13, pid=1", "XID_13", {"mig": "GPU-I:03 GPU-CI:01"}),
    ("NVRM: Xid (PCI:0000:3b:00): 45", "XID_45", {}),
    ("NVRM: Xid (PCI:0000:3b:00.0): 79 GPU", "XID_79", {}),
]


@pytest.mark.parametrize(("line", "code", "attrs"), FORMS)
def test_every_generation_of_the_line_is_read(line, code, attrs):
    (event,) = parse(line).events
    assert (event.code, event.gpu) == (code, "0000:3b:00")
    assert attrs.items() <= dict(event.attrs).items()


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000, "-1", "3.5", "99"])
def test_a_time_that_cannot_be_is_no_time(number):
    for prefix in (
        f"[Tue Mar {number} 01:00:00 2026] ",
        f"[Tue Mar 10 {number}:00:00 2026] ",
        f"Mar {number} 22:41:05 h kernel: ",
    ):
        assert {e.code for e in parse(prefix + XID).events} <= {"XID_79"}


def test_a_domain_that_is_not_zero_is_kept():
    assert parse("NVRM: Xid (PCI:0019:01:00): 31, x").events[0].gpu == "0019:01:00"


def test_the_cause_that_a_line_names_counts_too():
    codes = [
        e.code for e in parse("NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=x, Ch 1 caused by previous Xid 48").events
    ]
    assert codes == ["XID_45", "XID_48"]


def test_the_uuid_line_names_the_gpu_of_earlier_and_later_lines():
    uuid = "GPU-11111111-2222-4333-8444-555555555555"
    got = parse(f"{XID}\nNVRM: GPU at PCI:0000:3b:00: {uuid}\n{XID.replace('79', '45')}")
    assert {e.gpu for e in got.events} == {uuid}


def test_three_physical_lines_are_one_lost_gpu():
    text = "NVRM: The NVIDIA GPU 0000:3b:00.0\n  NVRM: (PCI ID: 10de:2330) installed in this system has\n" + (
        "  NVRM: fallen off the bus and is not responding to commands."
    )
    assert [(e.code, e.gpu) for e in parse(text).events] == [("GPU_FALLEN_OFF_BUS", "0000:3b:00")]
    assert [e.code for e in parse(text.replace("\n", "\\x0a")).events] == ["GPU_FALLEN_OFF_BUS"]


def test_a_body_of_many_lines_is_one_event():
    header = (
        "NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU6 GSP!"
    )
    body = (
        "NVRM: GPU6 GSP RPC buffer contains function 103\nNVRM:      0    103  GSP_RM_ALLOC 0x0\nCall Trace:\n <TASK>"
    )
    got = parse(f"{header}\n{body}")
    assert [(e.code, e.count) for e in got.events] == [("XID_119", 1)]
    assert got.ignored


def test_a_flood_is_one_event_with_a_count_in_flat_memory():
    log = KernelLog()
    for n in range(50_000):
        log.feed(f"[{n // 100}.0] NVRM: Xid (PCI:0000:3b:00): 95, pid={n % 29}, name=x, Uncontained")
    got = log.result()
    assert sum(e.count for e in got.events) == 50_000 and len(got.events) < 200


def test_a_pause_begins_a_new_burst():
    got = parse(f"[10.0] {XID}\n[20.0] {XID}\n[400.0] {XID}")
    assert [e.count for e in got.events] == [2, 1]


def test_repeats_that_syslog_folded_are_counted():
    line = f"Mar 10 22:41:05 host kernel: message repeated 7 times: [ {XID}]"
    assert parse(line).events[0].count == 7


def test_a_boot_in_the_log_separates_what_it_cleared():
    text = f"[9000.0] {XID}\n[    0.000000] Linux version 6.8.0\n[   10.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=1, x"
    boots = {e.code: e.boot_id for e in parse(text).events}
    assert boots["XID_79"] != boots["XID_31"]


def test_json_lines_of_the_journal_are_read():
    record = {
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": "0",
        "MESSAGE": XID,
        "__REALTIME_TIMESTAMP": "1764500000000000",
    }
    line = json.dumps(record)
    (event,) = parse(line).events
    assert event.code == "XID_79" and event.at.year == 2025
    forged = line.replace('"kernel"', '"syslog"')
    assert parse(forged).events[0].code == "LOG_INJECTION_SUSPECTED"


def test_lost_records_are_unknown_and_not_healthy():
    assert parse("/dev/kmsg: read: Broken pipe, records were lost").events[0].code == "KMSG_OVERRUN"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): , pid=1",
        "NVRM: Xid (PCI:0000:3b:00): 79abc, x",
        "NVRM: Xid (PCI:zzzz:3b:00): 79, x",
        "NVRM: Xid (PCI:0000:3b:00) 79, x",
        "NVRM: Xid (PCI:0000:3b:00): 123456, x",
        "NVRM: Xid (PCI:0000:3b:00): 0, x",
    ],
)
def test_what_is_no_number_is_none(line):
    assert parse(line).events == ()

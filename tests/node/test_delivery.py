"""The running reporter and a server that comes, goes, refuses and forgets."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from itertools import pairwise

import pytest

from tests.node.machine import BOOT, Server, schema_errors
from workers.node import healthboard_node as node

XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def _texts(report):
    return [x["text"] for x in report["kernel"]]


def jumps(numbers):
    """How often a number is not the next one. They only ever grow; a restart may jump, up to the uptime."""
    assert numbers == sorted(set(numbers))
    return sum(after != before + 1 for before, after in pairwise(numbers))


def test_reports_arrive_in_order_with_the_credential_and_fit_the_schema(machine, server, reporter):
    reporter(server)
    server.wait(lambda r: len(server.reports) >= 4)
    reports = server.reports[:4]
    assert [e for r in reports for e in schema_errors(r, node.REPORT_SCHEMA)] == []
    assert [r["seq"] - reports[0]["seq"] for r in reports] == [0, 1, 2, 3]
    assert {r["boot_id"] for r in reports} == {BOOT}
    assert server.posts[0][:2] == ("/api/v1/node/reports", "Bearer node-token-1")


def test_an_xid_is_reported_at_once_with_the_flight_recorder(machine, server, reporter):
    reporter(server, HEALTHBOARD_INTERVAL="30")
    server.wait(lambda r: r["gpu_count"] == 8)
    machine.set(0, lost=1)
    began = time.monotonic()
    machine.say(XID79, 7)
    report = server.wait(lambda r: r["kernel"])
    assert time.monotonic() - began < 15  # the next turn would be in 30 s
    assert (_texts(report), report["kernel"][0]["seq"]) == ([XID79], 7)
    assert (report["gpus"][0]["status"], report["gpus"][0]["uuid"]) == ("lost", machine.uuid(0))
    assert report["recorder"][0]["gpus"][machine.uuid(0)]["temperature_c"] == 45
    assert schema_errors(report, node.REPORT_SCHEMA) == []


def test_the_recorder_comes_only_when_something_breaks(machine, server, reporter):
    reporter(server)
    server.wait(lambda r: len(server.reports) >= 3)
    assert [r["recorder"] for r in server.reports[:3]] == [[], [], []]
    machine.set(2, remap="0 9 0 1")
    report = server.wait(lambda r: r["recorder"])
    assert report["gpus"][2]["row_remap"]["failure"] is True


def test_while_the_server_is_away_reports_wait_and_then_come_in_order(machine, reporter):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    process = reporter(f"http://127.0.0.1:{port}", HEALTHBOARD_BACKOFF="0.05")
    machine.say(XID79, 7)
    spool = machine.path / "state/spool.jsonl"
    deadline = time.monotonic() + 10
    while not (spool.exists() and spool.read_bytes().count(b"\n") >= 5) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)  # what waits outlives the process
    assert process.wait(5) == 0
    waiting = [json.loads(x)["seq"] for x in spool.read_text().splitlines()]
    server = Server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        reporter(server)
        server.wait(lambda r: r["seq"] > waiting[-1])
        numbers = [r["seq"] for r in server.reports]
        assert numbers[: len(waiting)] == waiting
        assert (jumps(waiting), jumps(numbers[len(waiting) :])) == (0, 0)
        assert [t for r in server.reports for t in _texts(r)] == [XID79]
    finally:
        server.shutdown()
        server.server_close()


def test_a_restart_goes_on_counting_and_loses_no_kernel_line(machine, server, reporter):
    machine.say(XID79, 7)
    first = reporter(server)
    server.wait(lambda r: r["kernel"])
    first.send_signal(signal.SIGTERM)
    assert first.wait(5) == 0
    machine.say(XID79 + " again", 8)  # while nobody looks
    count = len(server.reports)
    reporter(server)
    server.wait(lambda r: XID79 + " again" in _texts(r))
    numbers = [r["seq"] for r in server.reports]
    assert len(server.reports) > count
    assert jumps(numbers) <= 1, numbers
    assert [x["seq"] for r in server.reports for x in r["kernel"]] == [7, 8]


def test_numbers_that_a_full_disk_did_not_keep_are_not_used_again_in_this_boot(machine):
    path = machine.path / "state.json"
    path.write_text(json.dumps({"boot_id": BOOT, "report_seq": 3, "kmsg_seq": 9, "requests": []}))
    store = node.Store(str(path), BOOT)
    assert store.report_seq == int(node.uptime_s()) > 3 and store.kmsg_seq == 9
    ahead = int(node.uptime_s()) + 1000
    path.write_text(json.dumps({"boot_id": BOOT, "report_seq": ahead}))
    assert node.Store(str(path), BOOT).report_seq == ahead


def test_kernel_lines_of_a_report_that_the_server_refuses_are_told_as_lost_by_the_next(machine, server, reporter):
    server.refuse = lambda report: 422 if report["kernel"] else None
    reporter(server)
    assert not server.wait(lambda r: True)["kernel_overrun"]
    machine.say(XID79, 7)
    told = server.wait(lambda r: r["kernel_overrun"])
    server.wait(lambda r: r["seq"] > told["seq"])
    assert [r["kernel_overrun"] for r in server.reports].count(True) == 1 and 422 in [p[2] for p in server.posts]


def test_that_kernel_lines_were_lost_outlives_a_restart(machine):
    settings = node.Settings({**machine.env, "HEALTHBOARD_URL": "http://127.0.0.1:1", "HEALTHBOARD_NODE_TOKEN": "x"})
    first = node.Reporter(settings)
    first.kmsg.pending.append({"seq": 1, "at": "", "facility": 0, "level": 3, "text": XID79})
    try:
        first.round()
        first.spool.max_bytes = 1
        first.round()  # in the place of the one before
    finally:
        first.probe.close()
    assert node.Reporter(settings).spool.take_kernel_lost()
    (machine.path / "state/state.json").write_text(json.dumps({"boot_id": "another", "kernel_lost": True}))
    assert not node.Reporter(settings).spool.take_kernel_lost()


@pytest.mark.parametrize(
    "error, seconds, left",
    [
        (node.TOO_MUCH, 61, [3, 9]),
        (node.TOO_MUCH, 60, list(range(1, 10))),
        (node.AHEAD, 600, list(range(1, 10))),  # that waits for its time, and no news behind it waits longer
    ],
)
def test_where_the_server_takes_nothing_for_long_what_is_new_does_not_wait_behind_what_is_not(
    machine, server, error, seconds, left
):
    settings = node.Settings({**machine.env, "HEALTHBOARD_URL": server.url, "HEALTHBOARD_NODE_TOKEN": "x"})
    spool = node.Spool(str(machine.path), 99000)
    for seq in range(1, 10):
        spool.append({"seq": seq, "kernel": ["x"] if seq == 3 else [], "results": [], "recorder": []})
    server.answers, server.retry_after = [(429, {"error": error, "detail": "for the test"})], seconds
    outcome, wait = node.Sender(settings, spool, None).deliver(spool.peek()[0])
    assert (outcome, wait) == ("retry", 60 if error == node.AHEAD else seconds)
    assert [json.loads(line)["seq"] for line in (machine.path / "spool.jsonl").read_text().splitlines()] == left


def test_a_kill_in_the_middle_loses_no_kernel_line(machine, server, reporter):
    for seq in range(1, 40):
        machine.say(f"NVRM: Xid (PCI:0000:3b:00): 31, number {seq}", seq)
        if seq in (10, 25):
            victim = reporter(server)
            server.wait(lambda r, seq=seq: any(x["seq"] == seq for x in r["kernel"]))
            victim.kill()
            victim.wait(5)
    reporter(server)
    server.wait(lambda r: any(x["seq"] == 39 for x in r["kernel"]))
    got = {x["seq"]: x["text"] for r in server.reports for x in r["kernel"]}
    assert sorted(got) == list(range(1, 40))


def test_what_cannot_be_healed_is_said_once_and_dropped(machine, server, reporter):
    server.answers = [(422, None), (422, None), (400, None), (409, None)]
    process = reporter(server)
    server.wait(lambda r: len(server.reports) >= 2)
    refused = process.errors.read_text()
    assert refused.count("refuses a report (422)") == 1
    assert [p[2] for p in server.posts[:5]] == [422, 422, 400, 409, 200]


def test_what_may_be_healed_is_kept(machine, server, reporter):
    server.answers = [(401, None), (503, None), (429, None), (404, None), (302, None)]
    reporter(server)
    report = server.wait(lambda r: True)
    server.wait(lambda r: r["seq"] == report["seq"] + 3)
    assert [p[2] for p in server.posts[:6]] == [401, 503, 429, 404, 302, 200]
    numbers = [r["seq"] for r in server.reports]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))  # the first one was not lost


def test_what_a_clock_dated_ahead_waits_for_neither_the_hour_nor_the_clock(machine, server):
    settings = node.Settings({**machine.env, "HEALTHBOARD_URL": server.url, "HEALTHBOARD_NODE_TOKEN": "x"})
    spool = node.Spool(str(machine.path), 100_000)
    sender = node.Sender(settings, spool, lambda answer: None)
    earlier = node.iso(time.time() - 900)
    for seq, dated in ((1, node.iso(time.time() + 1800)), (2, earlier)):
        spool.append({"seq": seq, "sent_at": dated, "kernel": [], "results": []})
    sender._next()
    sender._next()
    first, second = server.reports
    assert (first["seq"], second["seq"], second["sent_at"]) == (1, 2, earlier), "what waited keeps its time"
    assert node.iso(time.time() - 30) < first["sent_at"] <= node.iso(time.time())

    server.answers = [(429, {"error": node.AHEAD, "detail": "set the node's clock"})]
    server.retry_after = 480
    assert sender.deliver(b'{"seq": 3}') == ("retry", 60)


STRANGERS = [
    (200, "<html>Sign in</html>"), (400, "<h1>Bad Request (400)</h1>"), (403, "<html>blocked</html>"), (422, "no"),
    (413, "<html>too large</html>"), (409, {"message": "conflict"}), (200, {"status": "up"}), (200, {"accepted": False}),
    (400, {"error": "invalid_request", "error_description": "who are you?"}), (422, ["error", "detail"]),
]  # fmt: skip


@pytest.mark.parametrize("answer", STRANGERS)
def test_what_is_not_healthboards_answer_takes_no_report_and_no_credential(machine, server, answer):
    settings = node.Settings({**machine.env, "HEALTHBOARD_URL": server.url, "HEALTHBOARD_NODE_TOKEN": "x"})
    told, refused = [], []
    sender = node.Sender(settings, None, told.append)
    sender.identity.refused = refused.append
    server.answers = [answer]
    assert sender.deliver(b'{"seq": 1}')[0] == "retry"
    assert (told, refused, sender.refused) == ([], [], 0)
    assert sender.deliver(b'{"seq": 1}') == ("done", 0)
    assert (told[0]["accepted"], len(server.reports)) == (True, 1)


def test_what_came_instead_of_an_answer_is_said_once_until_it_is_over(machine, server, reporter):
    server.answers = [(200, "<html>Sign\n in</html>"), (400, "<h1>Bad Request (400)</h1>")]
    process = reporter(server)
    report = server.wait(lambda r: True)
    with server.changed:
        server.answers = [(502, "<html>away</html>")]
    server.wait(lambda r: r["seq"] >= report["seq"] + 3)
    numbers = [r["seq"] for r in server.reports]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    said = [line for line in process.errors.read_text().splitlines() if "not healthboard's API" in line]
    assert [line.partition("?): ")[2] for line in said] == [
        "200 (text/html) <html>Sign in</html>", "502 (text/html) <html>away</html>",
    ], said  # fmt: skip


def test_a_report_that_is_too_large_goes_without_its_recorder(machine, server, reporter):
    server.refuse = lambda report: 413 if report["recorder"] else None
    reporter(server)
    server.wait(lambda r: len(server.reports) >= 2)
    machine.say(XID79, 7)
    report = server.wait(lambda r: r["kernel"])
    assert 413 in [p[2] for p in server.posts]
    assert (report["recorder"], _texts(report)) == ([], [XID79])


def test_a_report_that_is_too_large_all_the_same_blocks_nothing(machine, server, reporter):
    server.refuse = lambda report: 413 if report["kernel"] else None
    machine.say(XID79, 7)
    reporter(server)
    server.wait(lambda r: len(server.reports) >= 2)
    assert 413 in [p[2] for p in server.posts]


def test_the_credential_is_read_from_its_file_and_renewed_from_it(machine, server, reporter):
    token = machine.path / "token"
    token.write_text("first\n")
    reporter(server, HEALTHBOARD_NODE_TOKEN="", HEALTHBOARD_NODE_TOKEN_FILE=str(token))
    server.wait(lambda r: True)
    token.write_text("second\n")
    deadline = time.monotonic() + 5
    while server.posts[-1][1] != "Bearer second" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (server.posts[0][1], server.posts[-1][1]) == ("Bearer first", "Bearer second")


def test_bad_settings_give_one_line(machine):
    for env, word in (
        ({"HEALTHBOARD_URL": ""}, "HEALTHBOARD_URL is not set"),
        ({"HEALTHBOARD_URL": "http://203.0.113.9"}, "https"),
        ({"HEALTHBOARD_URL": "ftp://example.com"}, "https"),
        (
            {"HEALTHBOARD_URL": "https://example.com", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://example.com"},
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        ),
        ({"HEALTHBOARD_URL": "https://example.com", "HEALTHBOARD_INTERVAL": "often"}, "HEALTHBOARD_INTERVAL"),
        (
            {"HEALTHBOARD_URL": "https://example.com", "HEALTHBOARD_INTERVAL": "41"},
            "must be 40 seconds at most, not 41",
        ),
    ):
        machine.env.update({"HEALTHBOARD_NODE_TOKEN": "", **env})
        status, _, err = machine.run()
        assert (status, len(err.splitlines()), word in err) == (2, 1, True), err


def test_http_is_taken_for_loopback_alone():
    for url in ("http://127.0.0.1:8000", "http://localhost:1", "http://[::1]:80", "https://hb.example.com/prefix"):
        assert node.check_url(url)
    for url in ("http://10.0.0.1", "http://localhost.example.com", "http://127.0.0.1.example.com", "//x", "https://:1"):
        try:
            node.check_url(url)
        except node.ConfigError:
            continue
        raise AssertionError(url)


def test_https_is_checked_against_the_given_authority(machine, server, reporter):
    openssl = shutil.which("openssl")
    assert openssl, "openssl is needed to make a certificate for this test: install it"
    key, certificate = machine.path / "key.pem", machine.path / "cert.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key,
         "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace("http://", "https://")
    stranger = reporter(url)
    deadline = time.monotonic() + 10
    while "CERTIFICATE_VERIFY_FAILED" not in stranger.errors.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "CERTIFICATE_VERIFY_FAILED" in stranger.errors.read_text()
    assert server.posts == []
    stranger.send_signal(signal.SIGTERM)
    stranger.wait(5)
    reporter(url, HEALTHBOARD_CA_FILE=str(certificate))
    server.wait(lambda r: r["gpu_count"] == 8)


def test_a_server_that_never_answers_does_not_stop_the_reading(machine, reporter):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        process = reporter(f"http://127.0.0.1:{silent.getsockname()[1]}")
        machine.say(XID79, 7)
        spool = machine.path / "state/spool.jsonl"
        deadline = time.monotonic() + 10
        while not (spool.exists() and spool.read_bytes().count(b"\n") >= 5) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.poll() is None
        assert XID79 in spool.read_text()

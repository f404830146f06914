"""Whatever a machine answers, it costs no more than its limits and says no more than its own name."""

from __future__ import annotations

import asyncio
import gzip
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.collect.answers import TEXT, Answers, http
from workers.collect import fetch
from workers.collect.fetch import Failure, Limits, Target

GOOD = b"DCGM_FI_DEV_GPU_TEMP 40\n"
LIMITS = Limits(node_s=10, overall_s=20, headers=2048, body=100_000)
SHORT = replace(LIMITS, node_s=0.4)  # for those that never end


@pytest.fixture(scope="module")
def answers():
    made = Answers()
    yield made
    made.close()


def ask(answers: Answers, answer, read=bytes, limits=LIMITS):
    host = answers.at("127.66.0.1", answer)
    return fetch.gather({"x": Target(host, answers.port)}, read, limits=limits)["x"]


async def _endless(writer):
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    while True:
        writer.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        await writer.drain()


async def _endless_headers(writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: and more\r\n")
        await writer.drain()


async def _drip(writer):
    writer.write(http(GOOD * 100)[:-2000])
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _nothing(writer):
    await asyncio.sleep(2)


def _chunked(body: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"%x;ext=1\r\n%s\r\n" % (len(body), body) + end


@pytest.mark.parametrize("answer", [http(GOOD), _chunked(GOOD), http(GOOD, kind="TEXT/PLAIN")])
def test_a_whole_answer_is_read(answers, answer):
    assert ask(answers, answer) == GOOD


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_endless, "its answer is too long"),
        (_endless_headers, "its headers are longer than 2048 bytes"),
        (_drip, "no whole answer within 0.4 s"),
        (_nothing, "no whole answer within 0.4 s"),
        (http(GOOD, more="X-Big: " + "y" * 4000 + "\r\n"), "its headers are longer than 2048 bytes"),
        (http(b"", status="302 Found", more="Location: http://127.66.0.2:1/\r\n"), "it answers 302"),
        (http(b"", status="500 Internal Server Error"), "it answers 500"),
        (http(gzip.compress(GOOD), more="Content-Encoding: gzip\r\n"), "its answer is compressed, which nobody asked for"),
        (http(b"<html>", kind="text/html"), "its answer is not an exporter's text"),
        (http(b"x" * 100_001), "its answer is too long"),
        (http(GOOD)[:-3], "it closed the connection before the answer was whole"),
        (_chunked(GOOD, end=b""), "it closed the connection before the answer was whole"),
        (_chunked(GOOD, end=b"zz\r\n"), "its answer is malformed"),
        (_chunked(GOOD, end=b"-5\r\n"), "its answer is malformed"),
        (b"", "it closed the connection before the answer was whole"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "its headers are malformed"),
        (f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\n\r\n".encode() + GOOD, "it does not say how long its answer is"),
        (http(GOOD, more="Content-Length: 1\r\n"), "it gives content-length twice"),
        (http(GOOD, more="Transfer-Encoding: chunked\r\n"), "it does not say how long its answer is"),
        (http(GOOD, more="Content-Length : 1\r\n"), "its headers are malformed"),
    ],
)  # fmt: skip
def test_a_bad_answer_is_a_reason_and_nothing_else(answers, answer, why):
    began = time.monotonic()
    assert ask(answers, answer, limits=SHORT if answer in (_drip, _nothing) else LIMITS) == Failure(why)
    assert time.monotonic() - began < 9


def test_no_redirect_is_followed_and_no_proxy_of_the_environment_is_asked(answers, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.66.0.9:{answers.port}")
    aside = answers.at("127.66.0.9", http(GOOD))
    ask(answers, http(b"", status="307 Temporary Redirect", more=f"Location: http://{aside}:{answers.port}/\r\n"))
    assert aside not in {address for address, _ in answers.asked}
    assert b"accept-encoding: identity\r\n" in answers.asked[-1][1].lower()


def test_nobody_listens_and_names_are_not_looked_up(answers):
    targets = {"closed": Target("127.66.0.200", 1), "name": Target("localhost", answers.port)}
    found = fetch.gather(targets, bytes, limits=LIMITS)
    assert found["closed"] == Failure("Connection refused")
    assert "does not appear to be an IPv4 or IPv6 address" in found["name"].why


def test_one_bad_machine_costs_the_others_nothing(answers):
    def read(body):
        if b"bug" in body:
            raise RuntimeError("a bug of ours")
        return body

    targets = {n: Target(answers.at(f"127.66.1.{n}", http(GOOD)), answers.port) for n in range(1, 6)}
    answers.at("127.66.1.3", http(b"bug"))
    answers.at("127.66.1.4", _endless)
    found = fetch.gather(targets, read, limits=LIMITS)
    assert [found[n] == GOOD for n in range(1, 6)] == [True, True, False, False, True]
    assert found[3] == Failure("its answer cannot be read")


def test_the_round_as_a_whole_ends_in_time_and_says_who_was_not_reached(answers):
    targets = {n: Target(answers.at("127.66.0.1", _nothing), answers.port) for n in range(20)}
    ticks = []
    began = time.monotonic()
    limits = Limits(node_s=0.3, overall_s=0.5, at_once=2)
    found = fetch.gather(targets, bytes, limits=limits, tick=lambda: ticks.append(1))
    assert time.monotonic() - began < 9 and ticks
    assert set(found) == set(targets)
    assert sum(not answer.tried for answer in found.values()) >= 14


def test_it_runs_beside_a_loop_of_the_caller(answers):
    async def inside():
        return ask(answers, http(GOOD))

    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop already: the browser tests leave theirs running
        assert pool.submit(asyncio.run, inside()).result(20) == GOOD

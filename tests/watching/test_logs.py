"""What is logged: one record per event whatever stands in it, with the ids that lead from a click to a call."""

from __future__ import annotations

import json
import logging
import re

import pytest

from healthboard import logs
from healthboard.audit.middleware import RequestId

HOSTILE = "a\nERROR root forged\x1b[31m\u2028b\0"


@pytest.fixture
def lines():
    """`lines(formatter, …)`: what a logger with that formatter wrote."""

    def write(formatter, say):
        found = []
        handler = logging.Handler()
        handler.emit = lambda record: found.append(formatter.format(record))
        logger = logging.Logger("healthboard.test")
        logger.addHandler(handler)
        say(logger)
        return found

    return write


@pytest.mark.parametrize("formatter", [logs.Line, logs.json_lines])
def test_what_others_say_cannot_forge_a_record(lines, formatter):
    (text,) = lines(formatter(), lambda log: log.warning("node said %s", HOSTILE))
    # control characters are escaped; after a line end nothing may stand at the beginning of a line
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028]", text)
    assert all(line.startswith("    ") for line in text.split("\n")[1:])
    assert "forged" in text


def test_a_record_carries_what_it_is_about_and_no_more(lines):
    def say(log):
        with logs.about(request="r1"):
            with logs.about(repair=12, task=None):
                log.info("inside")
            log.info("between")
        log.info("outside")

    found = [json.loads(text) for text in lines(logs.json_lines(), say)]
    ids = [{k: row[k] for k in ("request", "repair", "task") if k in row} for row in found]
    assert ids == [{"request": "r1", "repair": 12}, {"request": "r1"}, {}]
    assert {*found[0]} >= {"timestamp", "level", "logger", "event"} and found[0]["event"] == "inside"
    inside, _, outside = lines(logs.Line(), say)
    assert inside.endswith("inside repair=12 request=r1") and outside.endswith("outside")


def test_an_exception_is_told_whole_in_one_record(lines):
    def say(log):
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")

    (text,) = lines(logs.json_lines(), say)
    assert "ValueError: broken" in json.loads(text)["exception"] and "\n" not in text


def test_the_records_of_a_request_carry_the_id_of_its_answer(lines, rf):
    def say(log):
        answers.append(RequestId(lambda request: log.info("asked") or {})(rf.get("/")))

    answers = []
    (text,) = lines(logs.json_lines(), say)
    assert json.loads(text)["request"] == answers[0]["X-Request-Id"]

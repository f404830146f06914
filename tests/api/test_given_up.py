"""A report that nobody waits for any more is not taken."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from healthboard.api.given_up import PATH, GivenUp
from tests.services import spare_port


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def ask(path: str, ours, taken: list[str]) -> HttpResponse:
    def rest(request):
        taken.append(request.path)
        return HttpResponse("ok")

    request = RequestFactory().post(path, **({"gunicorn.socket": ours} if ours else {}))
    return GivenUp(rest)(request)


def test_a_report_is_taken_while_its_node_waits(ends):
    ours, theirs = ends
    taken: list[str] = []
    theirs.sendall(b"the rest of a long body")
    assert ask(PATH, ours, taken).status_code == 200 and ask(PATH, None, taken).status_code == 200
    assert taken == [PATH, PATH]


def test_one_whose_node_has_hung_up_is_not_and_the_log_says_so_once_a_minute(ends, caplog):
    ours, theirs = ends
    taken: list[str] = []
    theirs.sendall(b"a body that nobody has read")
    theirs.close()
    answer = ask(PATH, ours, taken)
    assert answer.status_code == 503 and answer["Retry-After"] and not taken
    gate = GivenUp(lambda request: HttpResponse("ok"))
    caplog.clear()
    for _ in range(5):
        assert gate(RequestFactory().post(PATH, **{"gunicorn.socket": ours})).status_code == 503
    assert [r.getMessage().split()[0] for r in caplog.records] == ["1"] and "too few or too slow" in caplog.text


def test_what_a_person_does_is_carried_out_whether_or_not_the_browser_waits(ends):
    ours, theirs = ends
    theirs.close()
    taken: list[str] = []
    for path in ("/cases/1/answer/", "/api/v1/node/enrol", f"{PATH}/"):
        assert ask(path, ours, taken).status_code == 200
    assert len(taken) == 3


SLOW = """
import time
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"])
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from healthboard.api.given_up import GivenUp
from django.core.handlers.wsgi import WSGIRequest

def rest(request):
    time.sleep(0.5)
    with open({log!r}, "ab") as log:
        log.write(request.body + b"\\n")
    return HttpResponse("ok")

gate = GivenUp(rest)

def application(environ, start):
    answer = gate(WSGIRequest(environ))
    start(f"{{answer.status_code}} x", list(answer.items()))
    return [answer.content]
"""


def test_gunicorn_takes_only_those_that_are_waited_for(tmp_path):
    """One thread: what stands behind a slow one has time to be given up."""
    log, port = tmp_path / "log", spare_port()
    (tmp_path / "slow.py").write_text(SLOW.format(log=str(log)))
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "slow:application", "--bind", f"127.0.0.1:{port}", "--worker-class", "gthread",
         "--threads", "1", "--pythonpath", f"{tmp_path},{os.getcwd()}", "--no-control-socket", "--log-level", "error"],
    )  # fmt: skip
    try:
        first = _post(port, 0)
        given_up = [_post(port, number) for number in (1, 2)]
        last = _post(port, 3)
        for connection in given_up:
            connection.close()
        assert first.getresponse().status == last.getresponse().status == 200
        assert [json.loads(line)["n"] for line in log.read_text().splitlines()] == [0, 3]
    finally:
        server.terminate()
        server.wait(20)


def _post(port: int, number: int) -> http.client.HTTPConnection:
    end = time.monotonic() + 20
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("POST", PATH, json.dumps({"n": number, "filler": "x" * 30_000}))
            return connection
        except OSError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.1)

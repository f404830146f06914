"""What tasks cost is counted by the process and written together, and a sign of life is given only while the loop goes round."""

from __future__ import annotations

import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from celery import signals
from django.db import DatabaseError
from prometheus_client import generate_latest
from structlog import contextvars

from healthboard import clock, queues
from healthboard.api.metrics import registry
from healthboard.fleet.models import Pulse, Round
from workers import rounds
from workers.notify import heartbeat

pytestmark = pytest.mark.django_db


class Turned:
    at = 0.0

    def __call__(self):
        return self.at


def test_sums_are_written_together_and_added_up():
    clock_, sweep = Turned(), "workers.repair.sweep"
    book = rounds.Book(clock_)
    for seconds in (0.5, 2.0):
        book.add(sweep, seconds)
    assert not Round.objects.exists()  # not a write per task
    clock_.at = rounds.EVERY_S
    book.add(sweep, 1.0, "OperationalError")
    book.add("workers.verify.check", 0.1)
    book.write()
    book.add(sweep, 0.5)
    book.write()
    row = Round.objects.get(task=sweep)
    assert (row.runs, row.failed, row.seconds, row.longest, row.error) == (4, 1, 4.0, 2.0, "OperationalError")
    text = generate_latest(registry).decode()
    assert f'healthboard_task_runs_total{{end="failed",task="{sweep}"}} 1.0' in text
    assert f'healthboard_task_seconds_total{{task="{sweep}"}} 4.0' in text


def test_what_cannot_be_written_is_kept(monkeypatch):
    book = rounds.Book(Turned())
    book.add("workers.collect.sweep", 1.0)

    def away(*_):
        raise DatabaseError("read-only")

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "_store", away)
        book.write()
    book.add("workers.collect.sweep", 2.0)
    book.write()
    row = Round.objects.get()
    assert (row.runs, row.seconds, row.longest) == (2, 3.0, 2.0)


@pytest.mark.django_db(transaction=True)  # before a task, connections that do not commit by themselves are closed
def test_celery_tells_of_every_task_and_its_records_carry_the_id(monkeypatch):
    """The signals as a worker sends them around each task."""
    from workers.repair.tasks import advance

    seen, book = [], rounds.Book(Turned())
    monkeypatch.setattr(rounds, "book", book)
    signals.task_prerun.send(advance, task_id="abcdef123456", task=advance, args=[12], kwargs={})
    seen.append(contextvars.get_contextvars())
    signals.task_postrun.send(
        advance, task_id="abcdef123456", task=advance, args=[12], kwargs={}, retval=ValueError("x"), state="FAILURE"
    )
    assert seen == [{"task": "workers.repair.advance", "task_id": "abcdef12", "subject": "12"}]
    assert contextvars.get_contextvars() == {}
    book.write()
    assert list(Round.objects.values_list("task", "runs", "failed", "error")) == [
        ("workers.repair.advance", 1, 1, "ValueError")
    ]


def test_the_queues_are_told_where_the_broker_answers(monkeypatch):
    monkeypatch.setattr(queues, "lengths", lambda: {"repair": 7})
    assert 'healthboard_queue_messages{queue="repair"} 7.0' in generate_latest(registry).decode()
    monkeypatch.setattr(queues, "lengths", lambda: None)
    assert "healthboard_queue_messages{" not in generate_latest(registry).decode()


@pytest.fixture
def listener(monkeypatch):
    """Whoever waits for the sign of life: a real server that counts."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(self.path)
            self.send_response(heard_status[0])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    heard_status = [200]
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("HEALTHBOARD_HEARTBEAT_URL", f"http://127.0.0.1:{server.server_address[1]}/beat")
    yield heard, heard_status
    server.shutdown()
    server.server_close()


@pytest.fixture
def going(db):
    for name in heartbeat.NEEDED:
        Pulse.objects.create(name=name, at=clock.now())


def test_a_sign_of_life_is_given_while_the_loop_goes_round(listener, going):
    heartbeat.send()
    assert listener[0] == ["/beat"] and Pulse.objects.filter(name="heartbeat").exists()


@pytest.mark.parametrize("name", ["breadth", "canary", "decide", "invariants", "repair", "verify"])
def test_none_is_given_when_a_part_of_it_stands_still(listener, going, name):
    Pulse.objects.filter(name=name).update(at=clock.now() - timedelta(seconds=heartbeat.LEAST_S * 10))
    heartbeat.send()
    Pulse.objects.filter(name=name).delete()
    heartbeat.send()
    assert listener[0] == []


def test_none_is_given_when_an_invariant_is_broken(listener, going):
    Pulse.objects.filter(name="invariants").update(ok=False)
    heartbeat.send()
    assert listener[0] == []


def test_one_that_did_not_arrive_is_no_sign_of_life(listener, going, monkeypatch):
    listener[1][0] = 500
    heartbeat.send()
    monkeypatch.setenv("HEALTHBOARD_HEARTBEAT_URL", "http://127.0.0.1:1/")
    heartbeat.send()
    monkeypatch.setenv("HEALTHBOARD_HEARTBEAT_URL", "http://198.51.100.7/")  # not on loopback: refused in the sandbox
    heartbeat.send()
    assert not Pulse.objects.filter(name="heartbeat").exists()

"""A worker that is connected and takes nothing more is found out; one that is busy, or has nothing to do, is not."""

from __future__ import annotations

import subprocess
import time

import pytest

from healthboard import valkey
from healthboard.celery import app
from workers import hearing


class Turned:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def after(seconds: float, told: hearing.Hearing, tick: Turned) -> bool:
    """As the thread does: looks all the while."""
    end, deaf = tick.now + seconds, False
    while tick.now < end:
        tick.now += hearing.EVERY_S
        deaf = told.deaf()
    return deaf


@pytest.mark.parametrize(("waiting", "deaf"), [(1, True), (0, False)])
def test_only_what_waits_makes_a_silent_worker_deaf(waiting, deaf):
    tick = Turned()
    told = hearing.Hearing(lambda: waiting, tick)
    assert not after(hearing.DEAF_S, told, tick)
    assert after(2 * hearing.EVERY_S, told, tick) is deaf


def test_a_message_that_is_taken_and_a_task_that_runs_are_no_deafness(monkeypatch):
    tick = Turned()
    told = hearing.Hearing(lambda: 5, tick)
    for _ in range(5):
        assert not after(hearing.DEAF_S, told, tick)
        told.received()
    monkeypatch.setattr(hearing.state, "active_requests", {"a task"})
    assert not after(300, told, tick)


def test_a_worker_that_stood_still_hears_again_before_it_counts_as_deaf():
    tick = Turned()
    told = hearing.Hearing(lambda: 5, tick)
    assert not after(hearing.EVERY_S, told, tick)
    tick.now += 600
    assert not told.deaf()
    assert after(hearing.DEAF_S + hearing.EVERY_S, told, tick)


def test_a_broker_that_is_away_is_nobodys_deafness(monkeypatch):
    tick = Turned()
    monkeypatch.setattr(app.conf, "broker_url", "redis://127.0.0.1:1/0")
    told = hearing.Hearing(lambda: hearing.waiting(["repair"]), tick)
    tick.now = hearing.DEAF_S * 2
    assert not told.deaf()


def test_what_waits_is_counted_in_the_broker_itself(tmp_path, monkeypatch):
    command, url = valkey.prepare(tmp_path)
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if valkey.answers(url):
                break
            time.sleep(0.02)
        monkeypatch.setattr(app.conf, "broker_url", url)
        with app.connection_for_write(url) as connection:
            for task in ("workers.repair.sweep", "workers.repair.sweep", "workers.verify.sweep"):
                app.send_task(task, connection=connection)
        assert hearing.waiting(["repair"]) == 2 and hearing.waiting(["repair", "verify", "rounds"]) == 3
    finally:
        server.kill()
        server.wait()

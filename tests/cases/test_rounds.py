"""What comes round is starved by nothing, and starves nothing: queues of its own, bounded passes, cheap repeats."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from healthboard.celery import BREADTH, QUEUES, ROUNDS, app
from healthboard.fleet.models import Instance
from tests.cases import scene
from workers.decide import instance
from workers.decide import time as tend

pytestmark = pytest.mark.django_db
WAKE_UP = "workers.decide.evaluate"


def queue_of(task: str) -> str:
    return app.amqp.router.route({}, task)["queue"].name


def test_a_thousand_wake_ups_stand_before_no_round():
    rounds = ("workers.decide.sweep", "workers.decide.tend", "workers.decide.correlate")
    assert queue_of(WAKE_UP) == "decide"
    assert {queue_of(task) for task in rounds} == {BREADTH, ROUNDS}
    assert queue_of("workers.decide.correlate") == BREADTH, "nothing starts before it: it waits behind nothing"
    assert set(QUEUES) >= {"decide", BREADTH, ROUNDS}


def test_of_many_wake_ups_for_one_change_the_first_reads_and_the_rest_cost_a_query(time):
    scene.acting()
    on = scene.machine()
    scene.shows(on)
    instance.read_woken(on.pk)
    with CaptureQueriesContext(connection) as asked:
        for _ in range(5):
            instance.read_woken(on.pk)
    assert len(asked) == 5


def test_open_cases_are_read_again_in_turn_and_not_in_every_round(time):
    cases = [scene.asked() for _ in range(3)]

    def read_at():
        return list(Instance.objects.order_by("pk").values_list("evaluated_at", flat=True))

    first = read_at()
    tend.pass_over()
    assert len(first) == len(cases) and read_at() == first, "just read"
    time.turn(max(tend.LEAST.total_seconds(), tend.EVERY_S) + 1)
    tend.pass_over()
    assert all(new > old for new, old in zip(read_at(), first, strict=True))

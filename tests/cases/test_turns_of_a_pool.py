"""What waits for a unit of its pool's budget need not ask again and again: whoever gives one back says so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.repairs import budget, lifecycle, second
from healthboard.repairs.models import Repair
from healthboard.repairs.states import State
from tests import factories
from tests.cases import scene
from workers.repair import turns
from workers.repair.run import Run

pytestmark = pytest.mark.django_db


def claimed(row: Repair) -> Repair:
    held = lifecycle.claim(row.pk, "host:1")
    assert held is not None
    return held


def scheduled(home, **more) -> Repair:
    return factories.repair(
        scene.machine(home), state="SCHEDULED", **{"next_at": factories.ago(2), "not_before": factories.ago(2), **more}
    )


@pytest.fixture
def pool(time):
    """A repair that holds the one unit of its pool, and two that wait for it, to look again in a minute."""
    scene.acting()
    home = scene.solo()
    for _ in range(3):
        scene.machine(home)
    runs = claimed(scheduled(home))
    assert lifecycle.start(runs, "recheck") is None
    waits = [scheduled(home) for _ in range(2)]
    for row in waits:
        held = claimed(row)
        why = lifecycle.start(held, "recheck")
        assert why.startswith("Budget of solo")
        lifecycle.settle(held, wait=timedelta(minutes=1), why=why)
    assert lifecycle.due() == []
    return home, runs, waits


@pytest.mark.parametrize(
    ("desired", "before", "size"),
    [
        (9, [9], 9),  # about to step aside, and stepped aside where no round has told it yet
        (8, [9], 9),  # a round has told it
        (9, [9, 8], 9),  # the second's is not told yet
        (7, [9, 8], 9),
        (5, [9], 6),  # somebody else made the group smaller meanwhile
        (12, [9], 12),
        (9, [None], 9),  # as long as it has not asked to step aside
    ],
)
def test_a_place_taken_off_to_step_aside_counts_on_and_never_makes_the_pool_larger_than_it_was(desired, before, size):
    home = factories.pool("train", desired=desired)
    for one in before:
        told = {} if one is None else {"desired_before": one}
        factories.repair(scene.machine(home), action="REBOOT", facts={"decremented": True, **told})
    scheduled(home)
    assert budget.usage(home, {}).size == size


@pytest.mark.parametrize("end", ["finish", "put_off", "ask"])
def test_a_unit_that_is_given_back_makes_those_due_that_wait_for_it_the_eldest_first(pool, end):
    home, runs, waits = pool
    undone = scheduled(home, not_before=clock.now() + timedelta(minutes=5), next_at=clock.now() + timedelta(minutes=5))
    elsewhere = scheduled(factories.pool("other", "TEMPLATE"), next_at=clock.now() + timedelta(minutes=5))
    if end == "finish":
        lifecycle.finish(runs, State.SUCCEEDED, "REBOOTED", "serves again")
    elif end == "put_off":
        lifecycle.put_off(runs, "outside the window")
    else:
        lifecycle.ask(runs, "What now?", [{"key": "again", "title": "Try again", "needs": "decide"}])
    assert [pk for pk in lifecycle.due() if pk != runs.pk] == [row.pk for row in waits]
    for row in (undone, elsewhere):  # neither one that can still be undone, nor one of another pool
        assert row.pk not in lifecycle.due()


def test_one_that_was_answered_waits_for_its_unit_as_any_other_does(pool):
    """Its unit went to another while it asked: what comes free wakes it, and two people may start it over the budget."""
    _, runs, (first, _) = pool
    lifecycle.ask(runs, "What now?", [{"key": "again", "title": "Try again", "needs": "decide"}])
    took = claimed(first)
    assert lifecycle.start(took, "recheck") is None
    lifecycle.answer(runs.pk, actor=factories.actor(factories.person()), choice="again", reason="mended")
    answered = claimed(runs)
    turns.anew(Run(answered))
    why = lifecycle.start(answered, "recheck")
    lifecycle.settle(answered, wait=timedelta(minutes=1), why=why)
    answered.refresh_from_db()
    assert second.waits_for_budget(answered), (answered.state, answered.why_waiting)
    assert runs.pk not in lifecycle.due()
    lifecycle.finish(took, State.SUCCEEDED, "REBOOTED", "serves again")
    assert runs.pk in lifecycle.due()


def test_nothing_is_told_where_no_unit_was_held(pool):
    _, _, (first, second) = pool
    assert lifecycle.cancel_scheduled(first.pk, actor=factories.actor(factories.person()), why="undone")
    assert second.pk not in lifecycle.due()


def test_what_comes_free_while_one_asks_for_it_is_not_slept_over(pool):
    """It found the budget full, and the unit came back before it gave its claim back."""
    _, runs, (first, _) = pool
    Repair.objects.filter(pk=first.pk).update(next_at=factories.ago(1))
    held = claimed(first)
    why = lifecycle.start(held, "recheck")
    lifecycle.finish(runs, State.SUCCEEDED, "REBOOTED", "serves again")
    lifecycle.settle(held, wait=timedelta(minutes=1), why=why)
    assert first.pk in lifecycle.due()
    again = claimed(first)
    assert lifecycle.start(again, "recheck") is None
    lifecycle.settle(again, wait=timedelta(minutes=1))
    assert first.pk not in lifecycle.due(), "woken once"

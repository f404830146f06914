"""Thin tasks of the decide stage. Each is harmless when doubled, early, or for a row that is gone."""

from __future__ import annotations

from healthboard.celery import app
from healthboard.fleet import gaps
from workers import pulse
from workers.decide import breadth, instance, time


@app.task(name="workers.decide.evaluate")
def read_instance(instance_id: int) -> None:
    """Read one instance's evidence and tell its case. Nothing happens if the row is gone or was read since its change."""
    gaps.notice()
    instance.read_woken(instance_id)


@app.task(name="workers.decide.sweep")
def sweep() -> None:
    """Read every instance whose evidence changed, or whose reading changes by time alone."""
    gaps.notice()  # before anything is read: what arrived while nobody looked is backlog
    pulse.beat("decide")
    instance.read_due()
    pulse.beat("decide")


@app.task(name="workers.decide.correlate")
def see_breadth() -> None:
    """Look for one cause behind many cases. No automatic repair starts before such a look."""
    breadth.look()


@app.task(name="workers.decide.tend")
def cases() -> None:
    """Expire unanswered cases, wake snoozed ones, re-read the open ones."""
    time.pass_over()

"""Thin tasks of the repair stage: wake-ups for `engine.advance`, which claims the row or finds it taken."""

from __future__ import annotations

import logging

from healthboard import logs
from healthboard.celery import app
from healthboard.repairs import lifecycle
from workers import pulse
from workers.repair import engine, leases, trips, watch

log = logging.getLogger(__name__)


@app.task(name="workers.repair.advance")
def advance(repair_id: int) -> None:
    """Carry one repair on. Nothing happens if it is closed, not due, or claimed by another worker."""
    with logs.about(repair=repair_id):
        log.info("repair %s: %s", repair_id, engine.advance(repair_id))


@app.task(name="workers.repair.sweep")
def sweep() -> None:
    """Find repairs that are due: their wake-up may have been lost, or their worker killed."""
    leases.free_dead_workers()
    watch.look()
    pulse.beat("repair")
    try:
        trips.look()
    except Exception:  # repairs under way go on: they meet what is open already
        log.exception("the breakers could not be looked at")
    for repair_id in lifecycle.due():
        with logs.about(repair=repair_id):
            try:
                log.info("repair %s: %s", repair_id, engine.advance(repair_id))
            except Exception:  # the lease runs out, the next sweep tries again; the others go on
                log.exception("repair %s failed to advance", repair_id)

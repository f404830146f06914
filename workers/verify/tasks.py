"""Thin tasks of the verify stage."""

from __future__ import annotations

import logging

from healthboard.cases import alarm, retention
from healthboard.cases import invariants as rules
from healthboard.celery import app
from healthboard.fleet import gaps
from workers import pulse
from workers.verify import carry, sealing

log = logging.getLogger(__name__)


@app.task(name="workers.verify.sweep")
def sweep() -> None:
    """Carry ended repairs back to their cases. Harmless when doubled."""
    carry.sweep()
    pulse.beat("verify")


@app.task(name="workers.verify.check")
def invariants() -> None:
    """Check INV1 to INV9 and keep the result: what is broken is an alarm on every page. Harmless when doubled."""
    alarm.keep(rules.check())


@app.task(name="workers.verify.seal")
def seal() -> None:
    """Link committed audit rows to the chain and keep its end outside. Harmless when doubled: sealers take turns."""
    sealing.come_round()


@app.task(name="workers.verify.purge")
def purge() -> None:
    """Purge what is older than it is kept, as far as one round comes. Harmless when doubled: what is gone is gone."""
    gaps.notice()  # by a clock that jumped ahead everything would be old
    if retention.watched():
        return
    for done in retention.purge():
        if done.problem:
            log.warning("%s: %s", done.kind.name, done.problem)


@app.task(name="workers.verify.prove_alive")
def canary() -> None:
    """Proof that beat sends, the broker carries and a worker takes: its age is the worker's liveness."""
    pulse.beat("canary")

"""Thin task of the notify stage."""

from __future__ import annotations

import logging

from healthboard.celery import app
from workers import pulse
from workers.notify import heartbeat, send, watch

log = logging.getLogger("healthboard.notices")


@app.task(name="workers.notify.sweep")
def sweep() -> None:
    """Send what is due; a failure is kept on its row and tried again later, and never holds a repair up."""
    try:
        watch.look()
    except Exception:
        log.exception("what only time shows was not looked at; what is in the outbox is sent all the same")
    send.sweep()
    pulse.beat("notify")


@app.task(name="workers.notify.live")
def live() -> None:
    """A sign of life to the outside, while the loop goes round."""
    heartbeat.send()

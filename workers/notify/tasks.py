"""Thin task of the notify stage."""

from __future__ import annotations

from healthboard.celery import app
from workers import pulse
from workers.notify import send, watch


@app.task(name="workers.notify.sweep")
def sweep() -> None:
    """Send what is due; a failure is kept on its row and tried again later, and never holds a repair up."""
    watch.look()
    send.sweep()
    pulse.beat("notify")

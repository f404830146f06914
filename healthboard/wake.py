"""The one way in which `healthboard` starts work: by task name, on commit, with one id.

A message is only a wake-up. If it is lost (a dead broker, a killed process) the sweeper finds the row instead, so a
failure here is logged and otherwise ignored.
"""

from __future__ import annotations

import logging
import time

from django.db import transaction

log = logging.getLogger(__name__)
#: a broker that is down takes seconds to say so: after a failure this process sends nothing for so long
QUIET_S = 5.0
_quiet_until = 0.0


def wake(task: str, row_id: int | None = None) -> None:
    """Send `task` (``workers.<stage>.<verb>``) once the current transaction has committed."""
    transaction.on_commit(lambda: send(task, row_id))


def send(task: str, row_id: int | None = None) -> None:
    global _quiet_until
    if time.monotonic() < _quiet_until:
        return
    from healthboard.celery import app

    try:
        app.send_task(task, args=[] if row_id is None else [row_id], ignore_result=True, retry=False)
    except Exception as error:  # the broker is down: the sweeper does it later
        _quiet_until = time.monotonic() + QUIET_S
        log.warning("wake-up %s(%s) not sent: %s", task, row_id, error)

"""A worker that takes no message any more although some wait ends itself, and whoever started it starts it anew.

A consumer whose connection broke at an unlucky moment may stay connected anew and deaf: it answers, and its ticks pile
up. That it lives proves nothing, only that it takes what there is.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.worker import state

from healthboard.celery import app

log = logging.getLogger(__name__)
#: real seconds without a message, though some wait, after which a worker counts as deaf. Ticks come every few seconds
DEAF_S = 45.0
EVERY_S = 5.0
#: for what is under way to end by itself
GRACE_S = 20.0


class Hearing:
    """`waiting`: how many messages stand in this worker's queues; raises where the broker cannot be asked."""

    def __init__(self, waiting: Callable[[], int], tick: Callable[[], float] = time.monotonic) -> None:
        self.waiting, self.tick = waiting, tick
        self.heard = self.looked = tick()

    def received(self, **_: Any) -> None:
        self.heard = self.tick()

    def deaf(self) -> bool:
        """Messages waited at two looks in a row or more, for long, and none was taken. A task that runs is no deafness."""
        stood, self.looked = self.tick() - self.looked > 3 * EVERY_S, self.tick()
        if self.tick() - self.heard < DEAF_S / 3:
            return False  # it hears: nobody is asked what waits
        if stood or state.active_requests or not self._some_wait():  # nobody hears while all stands still
            self.heard = self.tick()
        return self.tick() - self.heard > DEAF_S

    def _some_wait(self) -> bool:
        try:
            return self.waiting() > 0
        except Exception:  # a broker that is away is nobody's deafness
            return False


def waiting(queues: list[str]) -> int:
    """Messages in these queues. Raises the broker's errors."""
    with app.connection_for_read(connect_timeout=3) as connection:
        channel = connection.default_channel
        return sum(channel.queue_declare(queue=name).message_count for name in queues)


@signals.worker_ready.connect
def _listen(sender: Any = None, **_: Any) -> None:
    queues = list(app.amqp.queues.consume_from)
    hearing = Hearing(lambda: waiting(queues))
    signals.task_received.connect(hearing.received, weak=False)
    threading.Thread(target=_watch, args=(hearing,), daemon=True, name="hearing").start()


def _watch(hearing: Hearing) -> None:
    while not hearing.deaf():
        time.sleep(EVERY_S)
    log.critical("no message was taken for %.0f s though some wait: this worker ends, to be started anew", DEAF_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(70)

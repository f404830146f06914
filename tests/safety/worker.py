"""Processes forked warm that wait to become a real Celery worker: solo pool, messages over Valkey."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from healthboard import aws, clock, transport
from healthboard.celery import app
from tests.safety.board import BARRIER, Board, die_with_parent

BARRIER_TASK = "tests.safety.barrier"
QUEUES = ("repair", "verify")
_me: tuple[Board, int] | None = None


def barrier(number: int) -> None:
    """Carried behind the messages of its queue: when it runs, they have run."""
    assert _me is not None
    _me[0].say(BARRIER, _me[1], number)


class Spare:
    """Forked at once; `start` makes a worker of it."""

    def __init__(self, board: Board, number: int, log: Path) -> None:
        self.number = number
        wait, self._go = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                die_with_parent()
                if os.getppid() != parent:
                    os._exit(0)
                os.close(self._go)
                order = os.read(wait, 65536)
                if order:
                    _become(board, number, json.loads(order), log)
            except BaseException as error:
                print(f"worker {number}: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(0)
        os.close(wait)
        self.fd = os.pidfd_open(self.pid)
        self.running = self.ended = self.stopped = self._closed = False

    def start(self, **order: Any) -> Spare:
        os.write(self._go, json.dumps(order).encode())
        self.running = True
        return self

    def signal(self, number: int) -> None:
        if not self.ended:
            os.kill(self.pid, number)

    def look(self, *, wait: bool = False) -> None:
        """Reap it, or notice that it was stopped."""
        if self.ended:
            return
        pid, status = os.waitpid(self.pid, os.WUNTRACED | (0 if wait else os.WNOHANG))
        if pid and os.WIFSTOPPED(status):
            self.stopped = True
        elif pid:
            self.ended, self.running, self.stopped = True, False, False

    def go_on(self) -> None:
        self.stopped = False
        self.signal(signal.SIGCONT)

    def end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.signal(signal.SIGKILL)
        while not self.ended:
            self.look(wait=True)
        os.close(self.fd)
        os.close(self._go)


def virtual_time(board: Board) -> None:
    """This process lives in the trial's time."""
    clock._epoch = board.time
    aws.monotonic = board.time


def own_clients() -> None:
    """Clients that were made before the fork, none of them connected, are this process's own."""
    aws._clients = {(os.getpid(), *key[1:]): client for key, client in aws._clients.items()}


def _let_barriers_through() -> None:
    """The transport drops what is no task of ours; the trials' own message is none, and must come through."""
    strange = transport.strange

    def but_for_barriers(message: Any) -> str:
        headers = message.get("headers") if isinstance(message, dict) else None
        return "" if isinstance(headers, dict) and headers.get("task") == BARRIER_TASK else strange(message)

    transport.strange = but_for_barriers


def _become(board: Board, number: int, order: dict[str, Any], log: Path) -> None:
    global _me
    from tests.safety.points import Points
    from workers import hearing

    _me = (board, number)
    out = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(out, 2)
    virtual_time(board)
    own_clients()
    _let_barriers_through()
    app.task(name=BARRIER_TASK)(barrier)  # in this process alone: the product has no such task
    hearing.DEAF_S = order.get("deaf", hearing.DEAF_S)
    if skew := order.get("skew"):
        host = time.time
        time.time = lambda: host() + skew
    Points(board, number, order).install()
    worker = app.Worker(
        pool="solo", concurrency=1, queues=list(order.get("queues", QUEUES)), hostname=f"safety-{number}@%h",
        loglevel="WARNING", without_mingle=True, without_gossip=True, without_heartbeat=True, quiet=True,
        redirect_stdouts=False,
    )  # fmt: skip
    worker.start()

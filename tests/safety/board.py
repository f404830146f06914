"""What the processes of one trial share: a clock that only the conductor moves, and a pipe on which workers report."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import select
import signal
import struct
import time
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

#: kinds of reports
BARRIER, REACHED, TASK_DONE = range(3)
_FORM = struct.Struct("<iiq")
TIME, DELIVERIES, COMMITS, STARTED, ENDED = 0, 16, 64, 112, 160
MOST_WORKERS = 48


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """This process ends when the one that started it does, however that ends."""
    with contextlib.suppress(Exception):
        _libc.prctl(_PR_SET_PDEATHSIG, number)


class Report(NamedTuple):
    kind: int
    worker: int
    value: int


class Board:
    """Make it before forking. Numbers are doubles in shared memory; each cell has one writer."""

    def __init__(self) -> None:
        self.cells = memoryview(mmap.mmap(-1, 4096)).cast("d")
        self._out, self._in = os.pipe()

    def time(self) -> float:
        return self.cells[TIME]

    def set_time(self, moment: float) -> None:
        self.cells[TIME] = moment

    def add(self, cell: int, worker: int) -> None:
        self.cells[cell + worker] += 1

    def get(self, cell: int, worker: int) -> int:
        return int(self.cells[cell + worker])

    def total(self, cell: int) -> int:
        return int(sum(self.cells[cell + n] for n in range(MOST_WORKERS)))

    def say(self, kind: int, worker: int, value: int = 0) -> None:
        os.write(self._in, _FORM.pack(kind, worker, value))

    def hear(self, timeout: float, watched: tuple[int, ...] = ()) -> Report | None:
        """The next report; None where `timeout` seconds passed or one of the `watched` pidfds ended first."""
        end = time.monotonic() + timeout
        ready, _, _ = select.select([self._out, *watched], [], [], max(end - time.monotonic(), 0))
        return Report(*_FORM.unpack(os.read(self._out, _FORM.size))) if self._out in ready else None

"""Conducts one trial: the loop of `tests.repairs.driver`, but repairs are carried by Celery worker processes.

Time stands still while a worker works. A step is a second of everything, then one wake-up for each stage, over the
broker; it ends when the worker has handled them, died or been stopped.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from healthboard import wake
from healthboard.api import node_intake
from healthboard.celery import app
from healthboard.fleet.models import Account
from healthboard.repairs.models import Repair
from healthboard.sandbox.config import Config
from healthboard.sandbox.server import Engine
from tests.repairs import driver
from tests.safety import board as boards
from tests.safety import worker as workers
from tests.safety.board import Board
from tests.safety.site import SPEED, Site
from workers.decide import breadth, instance
from workers.decide import time as cases_in_time

WAIT_S = 90.0
VERIFY_S = 2.0


class Stuck(Exception):
    """A worker did not finish in real time: the trial says nothing."""


class _Copied(driver._World):
    """A sandbox that goes on where a copied one stood."""

    def __init__(self, home: Path, port: int, moment: float) -> None:
        self.clock = driver.Still()  # type: ignore[assignment]
        self.clock.base, self.clock.offset = moment, 0.0
        self.engine = Engine(
            Config(home=home, speed=SPEED, script=False, post=False, port=port, own_vpc=True), self.clock
        )
        self.engine.start(ticking=False)
        self.home, self.url = home, self.engine.url


def settle_limits(offset: Callable[[], float]) -> None:
    """The intake's rate limits live in the trial's time."""
    for limit in ("_measure", "_whole", "_heard"):
        every = getattr(node_intake, limit)
        every.tick, every.last = offset, {}
    driver.seeded()


class Conductor(driver.Drive):
    """`begun`: the folder of a begun flow. Make it after the spares were forked."""

    def __init__(self, site: Site, begun: Path, board: Board, spares: list[workers.Spare]) -> None:
        self.site, self.board, self.spares = site, board, spares
        self.workers: list[workers.Spare] = []
        self.begun = json.loads((begun / "begun.json").read_text())
        for kept in site.home.glob("audit-head*"):  # an earlier trial's chain is not this one's
            kept.unlink()
        shutil.rmtree(site.home / "sandbox", ignore_errors=True)
        shutil.copytree(begun / "sandbox", site.home / "sandbox")
        self.fleet = _Copied(site.home, site.aws_port, self.begun["time"])
        self.crew = self.fleet.engine.crew
        self.since = self.fleet.clock.base
        self.due = defaultdict(float)
        self.hands: list[Callable[[], Any]] = []
        self.looks: list[Callable[[], Any]] = []  # after each step
        self.reached: list[Callable[[workers.Spare], None]] = []
        self._barriers = 0
        self._set()
        workers.virtual_time(board)
        workers.own_clients()
        settle_limits(lambda: self.offset)
        wake._quiet_until = 0.0
        self.account = Account.objects.get(account_id=driver.ACCOUNT)

    def _set(self) -> None:
        self.board.set_time(self.fleet.clock())

    # --- the loop

    def step(self, seconds: float = 1.0) -> None:
        self.fleet.advance(seconds, seconds)
        self._set()
        for hand in list(self.hands):
            hand()
        if self._turn("collect", driver.COLLECT_S):
            self.collect()
        self.report()
        instance.read_due()
        if self._turn("look", driver.LOOK_S):
            cases_in_time.pass_over()
        if self._turn("breadth", driver.BREADTH_S):
            breadth.look()
        self.sweep()
        for look in list(self.looks):
            look()

    def finish(self, within: float, until: Callable[[], Any] = lambda: False) -> None:
        """Go on until the repair is over, or `until`; then until its group stands still."""
        end = self.offset + within
        while not self.over() and not until() and self.offset < end:
            self.step()
        if self.over():
            groups = self.fleet.world.groups.values()
            while self.offset < end and any(m["state"] != "InService" for g in groups for m in g.members.values()):
                self.step()

    def sweep(self) -> None:
        self.deliver("workers.repair.sweep", "repair")
        if self._turn("verify", VERIFY_S):
            self.deliver("workers.verify.sweep", "verify")

    def deliver(self, task: str, queue: str, args: tuple[Any, ...] = ()) -> None:
        send(task, args)
        self.wait(queue)

    # --- workers

    def worker(self, **order: Any) -> workers.Spare:
        """The next spare begins to work."""
        started = self.spares[len(self.workers)].start(**order)
        self.workers.append(started)
        return started

    @property
    def current(self) -> workers.Spare:
        return self.workers[-1]

    def wait(self, queue: str, within: float = WAIT_S) -> None:
        """Until every message that stands in `queue` was handled, by whichever worker is there. Raises Stuck."""
        number = self._barrier(queue)
        end = time.monotonic() + within
        while True:
            alive = tuple(w.fd for w in self.workers if w.running and not w.stopped)
            report = self.board.hear(min(end - time.monotonic(), 3.0), alive)
            if report is not None and report.kind == boards.BARRIER and report.value == number:
                return
            if report is not None and report.kind == boards.REACHED:
                worker = self.spares[report.worker]
                worker.look(wait=True)
                for told in list(self.reached):
                    told(worker)
                number = self._barrier(queue)
            elif report is None and not any([self._lives(w) for w in self.workers if w.running and not w.stopped]):
                raise Stuck("no worker is left")
            elif report is None:  # the message may have been lost with its broker
                number = self._barrier(queue)
            if time.monotonic() > end:
                raise Stuck(f"{queue} was not handled within {within:.0f} s")

    def _lives(self, worker: workers.Spare) -> bool:
        worker.look()
        return not worker.ended

    def _barrier(self, queue: str) -> int:
        self._barriers += 1
        send(workers.BARRIER_TASK, (self._barriers,), queue=queue)
        return self._barriers

    # --- the flow's own

    @property
    def subject(self) -> str:
        return self.begun["machine"]

    def the_repair(self) -> Repair | None:
        return Repair.objects.filter(instance__instance_id=self.subject).order_by("-pk").first()

    def over(self) -> Repair | None:
        """The repair once it has ended and was carried back, or asks a person."""
        found = self.the_repair()
        ended = found is not None and ((found.closed_at and found.carried_back_at) or found.state == "ASKING")
        return found if ended else None

    def end(self) -> None:
        for spare in self.spares:
            spare.end()
        self.fleet.stop()


def send(task: str, args: tuple[Any, ...] = (), **more: Any) -> None:
    """One message, over a new connection where the old one has broken."""
    policy = {"max_retries": 20, "interval_start": 0.1, "interval_step": 0, "interval_max": 0.1}
    app.send_task(task, args=args, retry=True, retry_policy=policy, **more)


def seeded(*parts: object) -> random.Random:
    return random.Random("/".join(map(str, parts)))


KILL, STOP = int(signal.SIGKILL), int(signal.SIGSTOP)

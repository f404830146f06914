"""One slot: a warm process with servers of its own that runs trials, one after the other, each in a fork.

Specs come as JSON lines on standard input, results go as JSON lines to standard output.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import logging
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.safety.board import die_with_parent
from tests.safety.plan import ROWS
from tests.safety.site import Site

#: a trial that takes longer on the wall has hung
TRIAL_S = 500


def main() -> int:
    die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _leave)
    site = Site(Path(sys.argv[1]))
    try:
        site.enter()
        slot = Slot(site)
        for line in sys.stdin:
            spec = json.loads(line)
            print(json.dumps({"spec": spec, **slot.run(spec)}), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        site.stop()
    return 0


def _leave(*_: Any) -> None:
    raise KeyboardInterrupt


class Slot:
    def __init__(self, site: Site) -> None:
        from tests.safety import databases

        self.site = site
        _forked(databases.migrate, site, 60)
        gc.collect()
        gc.freeze()  # what is there now stays shared with the forks

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """{"broken": [sentences], "reached", "recovery", "wall_s", "cpu_s"}, or {"failed": why} where it says nothing."""
        from tests.safety import flows

        begun = time.monotonic()
        before = _cpu(self.site)
        try:
            self.site.mend()
            if ROWS[spec["row"]].alone:
                result = _forked(lambda: _alone(self.site, spec), self.site, TRIAL_S)
                return {**result, **_spent(self.site, begun, before)}
            flow = flows.FLOWS[spec["flow"]]
            if not flows.folder(self.site, flow).exists():
                _forked(lambda: flows.build(self.site, flow), self.site, TRIAL_S)
            result = _forked(lambda: _trial(self.site, flow, spec), self.site, TRIAL_S)
        except Crashed as crashed:  # whatever it was given, it may not fall over
            result = {"broken": [str(crashed)], "reached": 1, "recovery": 0}
        except Failed as failed:
            result = {"failed": str(failed)}
        return {**result, **_spent(self.site, begun, before)}


class Failed(Exception):
    """A child ended without a result."""


class Crashed(Failed):
    """A signal ended it, and not for its time."""


def _spent(site: Site, begun: float, before: float) -> dict[str, float]:
    return {"wall_s": round(time.monotonic() - begun, 2), "cpu_s": round(max(_cpu(site) - before, 0), 2)}


def _alone(site: Site, spec: dict[str, Any]) -> dict[str, Any]:
    from tests.safety import databases, rows

    logging.disable(logging.WARNING)  # what a trial does to it would fill pages
    databases.copy(databases.BASE, databases.TRIAL)
    databases.use(databases.TRIAL)
    for kept in site.home.glob("audit-head*"):
        kept.unlink()
    try:
        return rows.runner(spec["row"])(site, spec)
    except AssertionError as error:  # of the loop: what had to come did not come in the trial's time
        return {"broken": [f"{error}"[:2000] or "an assertion failed"], "reached": 1, "recovery": 0}


def _trial(site: Site, flow: Any, spec: dict[str, Any]) -> dict[str, Any]:
    import redis

    from tests.safety import databases, rows
    from tests.safety.board import Board
    from tests.safety.conductor import Conductor
    from tests.safety.worker import Spare

    logging.disable(logging.WARNING)
    databases.copy(databases.slugged(flow.name), databases.TRIAL)
    databases.use(databases.TRIAL)
    redis.Redis.from_url(site.redis).flushall()
    row = ROWS[spec["row"]]
    board = Board()
    spares = [Spare(board, number, site.folder / "workers.log") for number in range(row.spares)]
    conductor = Conductor(site, site.folder / "begun" / databases.slugged(flow.name), board, spares)
    if flow.hand:
        conductor.hands.append(lambda: flow.hand(conductor))
    try:
        return rows.runner(spec["row"])(conductor, flow, spec)
    finally:
        conductor.end()


def _forked(work: Callable[[], dict[str, Any] | None], site: Site, limit_s: float) -> dict[str, Any]:
    """What `work` returns, done in a fork of this process and within `limit_s`. Raises Failed."""
    out, into = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent()
            os.close(out)
            faulthandler.enable()  # where it stands, should it be ended by a signal
            faulthandler.dump_traceback_later(limit_s - 5)
            signal.alarm(int(limit_s))
            if os.getppid() == parent:
                answer = json.dumps(work() or {}).encode()
                with os.fdopen(into, "wb") as pipe:
                    pipe.write(answer)
                status = 0
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(into, b"!" + traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(status)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read()
    _, ended = os.waitpid(pid, 0)
    if said[:1] == b"{":
        return json.loads(said)
    if os.WIFSIGNALED(ended) and (by := os.WTERMSIG(ended)) != signal.SIGALRM:
        raise Crashed(f"ended by {signal.Signals(by).name}")
    raise Failed(said[1:].decode(errors="replace") or f"no answer within {limit_s:.0f} s")


def _cpu(site: Site) -> float:
    """Seconds of this process, of all its children that have ended, and of the servers."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    mine = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return mine + _process(site.postgres.process.pid) + _process(site.valkey.pid)


def _process(pid: int) -> float:
    """Seconds of a process and of its children that have ended."""
    with contextlib.suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


if __name__ == "__main__":
    sys.exit(main())

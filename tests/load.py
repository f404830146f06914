"""`make load`: node reports against the whole installation on this machine, held and then in steps; T18 of the safety table.

Real parts: PostgreSQL with its default durability, Valkey, gunicorn, a prefork worker, beat, and the sandbox's AWS with as
many instances as there are nodes. The nodes are made up: see `tests.load_nodes`.
What is measured depends on the machine, on which the load itself is made as well; it asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from healthboard import processes, valkey
from tests.load_nodes import JOIN_PER_S, generate, told
from tests.services import Postgres, spare_port

RESULT = Path(__file__).parent / "safety" / "load.json"
#: until the nodes that came last say nothing new any more
SETTLE_S = 45.0


@dataclass
class Step:
    """One rate, held for a while. Times in milliseconds, memory in MiB, CPU in milliseconds of one core per report."""

    nodes: int
    seconds: float
    sent: int = 0
    failed: int = 0
    refused: dict[int, int] = field(default_factory=dict)  # status -> how often; 0: no answer
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    per_second: float = 0.0
    web_cpu_ms: float = 0.0
    database_cpu_ms: float = 0.0
    workers_cpu_ms: float = 0.0
    memory_mib: list[int] = field(default_factory=list)  # at the beginning, in the middle, at the end
    backlog: list[int] = field(default_factory=list)  # wake-ups that wait, likewise
    unread: list[int] = field(default_factory=list)  # instances whose new evidence waits to be read, likewise


# --- the installation


class Installation:
    def __init__(self, folder: Path, nodes: int) -> None:
        self.home, self.nodes, self.port = folder, nodes, spare_port()
        self.postgres = Postgres.start(folder / "postgres", options=("-c", "fsync=on", "-c", "full_page_writes=on"))
        command, self.redis = valkey.prepare(folder / "valkey")
        for name in [n for n in os.environ if n.startswith(("AWS_", "HEALTHBOARD_"))]:
            del os.environ[name]
        groups = f"train=group:{nodes // 2},solo=template:{nodes - nodes // 2}"
        os.environ.update(
            HEALTHBOARD_MODE="sandbox", HEALTHBOARD_HOME=str(folder / "home"), DATABASE_URL=self.postgres.url,
            REDIS_URL=self.redis, PORT=str(self.port), HEALTHBOARD_SANDBOX_SPEED="1", HEALTHBOARD_SANDBOX_NODES="off",
            HEALTHBOARD_SANDBOX_SCRIPT="off", HEALTHBOARD_SANDBOX_POOLS=groups, HEALTHBOARD_LOG_LEVEL="WARNING",
            DJANGO_SETTINGS_MODULE="healthboard.settings", HEALTHBOARD_CONCURRENCY="2",
        )  # fmt: skip
        (folder / "home" / "run").mkdir(parents=True)
        (folder / "home" / "static").mkdir()
        self.children: dict[str, subprocess.Popen] = {"valkey": self._start("valkey", command)}
        for words in (["migrate", "--noinput"], ["setup"]):
            subprocess.run([sys.executable, "manage.py", *words], check=True, stdout=subprocess.DEVNULL)
        self.children["sandbox"] = self._start("sandbox", [sys.executable, "manage.py", "sandbox_serve"])
        from healthboard.celery import QUEUES

        for name, part, line in (
            ("worker", "all", processes.worker("all", QUEUES)), ("beat", "beat", processes.command("beat")),
            ("web", "web", _as_with_aws(processes.command("web"))),
        ):  # fmt: skip
            self.children[name] = self._start(name, line, processes.environment(part, os.environ))

    def _start(self, name: str, command: list[str], env: Any = None) -> subprocess.Popen:
        log = (self.home / f"{name}.log").open("wb")
        return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)

    def tokens(self) -> list[str]:
        """A credential for each instance, once the collectors know all of them."""
        import django

        django.setup()
        from healthboard import clock
        from healthboard.fleet.models import Instance
        from healthboard.people.models import NodeToken
        from healthboard.people.tokens import _hash, _new

        end = time.monotonic() + 240
        while (found := Instance.objects.filter(gone_at=None, state="running").count()) < self.nodes:
            if time.monotonic() > end:
                raise SystemExit(f"only {found} of {self.nodes} instances were collected: see {self.home}/worker.log")
            time.sleep(1)
        made = [(_new("hbn_"), pk) for pk in Instance.objects.order_by("pk").values_list("pk", flat=True)[: self.nodes]]
        NodeToken.objects.bulk_create(
            NodeToken(instance_id=pk, hash=_hash(token), created_at=clock.now(), created_by="load") for token, pk in made
        )  # fmt: skip
        return [token for token, _ in made]

    def cpu(self, *names: str) -> float:
        """Seconds of processor time of these children and of theirs that live."""
        return sum(_spent(pid) for name in names for pid in self._family(name))

    def memory(self) -> int:
        return sum(_resident(pid) for name in ("web", "worker") for pid in self._family(name))

    def backlog(self) -> tuple[int, int]:
        from django.db.models import F, Q

        from healthboard import queues
        from healthboard.fleet.models import Instance

        waiting = sum((queues.lengths() or {"": -1}).values())
        late = Q(evaluated_at=None) | Q(evidence_at__gt=F("evaluated_at"))
        return waiting, Instance.objects.filter(late, gone_at=None).exclude(evidence_at=None).count()

    def _family(self, name: str) -> list[int]:
        top = self.postgres.process.pid if name == "postgres" else self.children[name].pid
        found, todo = [], [top]
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            except OSError:
                continue
        return found

    def stop(self) -> None:
        for child in reversed(self.children.values()):
            child.send_signal(signal.SIGTERM)
        for child in self.children.values():
            try:
                child.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
        self.postgres.stop()


def _as_with_aws(web: list[str]) -> list[str]:
    """A sandbox's web server has one process; an installation's has two."""
    web[web.index("--workers") + 1] = "2"
    return web


def _spent(pid: int) -> float:
    """With that of its children that have ended."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:"))) // 1024


def run(place: Installation, orders: Connection, nodes: int, seconds: float) -> Step:
    """Grow to so many nodes, let the last ones settle, and measure."""
    orders.send(nodes)
    while (there := told(orders)[0]) < nodes:
        print(f"{there:6} nodes", flush=True)
        time.sleep(min(30.0, (nodes - there) / JOIN_PER_S + 0.5))
    time.sleep(SETTLE_S)
    told(orders)
    step = Step(nodes, seconds)
    before = {name: place.cpu(name) for name in ("web", "worker", "postgres")}
    for part in range(3):
        step.memory_mib.append(place.memory())
        waiting, unread = place.backlog()
        step.backlog.append(waiting)
        step.unread.append(unread)
        if part < 2:
            time.sleep(seconds / 2)
    _, took, step.refused = told(orders)
    step.sent, step.failed = len(took), sum(step.refused.values())
    spent = {name: place.cpu(name) - before[name] for name in before}
    cuts = statistics.quantiles(took, n=100) if len(took) > 1 else [0.0] * 99
    step.p50_ms, step.p99_ms = round(cuts[49] * 1000, 1), round(cuts[98] * 1000, 1)
    step.per_second = round(step.sent / seconds, 1)
    step.web_cpu_ms, step.workers_cpu_ms, step.database_cpu_ms = (
        round(spent[name] / max(step.sent, 1) * 1000, 2) for name in ("web", "worker", "postgres")
    )
    return step


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--nodes", type=int, default=2000, help="nodes that are held")
    words.add_argument("--minutes", type=float, default=10, help="for how long they are held")
    words.add_argument("--most", type=int, default=3000, help="nodes of the last step")
    words.add_argument("--by", type=int, default=250, help="nodes from one step to the next")
    words.add_argument("--step", type=float, default=60, help="seconds of each step")
    given = words.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended all the same
    steps: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="healthboard-load-") as folder:
        os.chmod(folder, 0o755)
        place = Installation(Path(folder), given.most)
        orders, theirs = multiprocessing.Pipe()
        try:
            load = multiprocessing.Process(target=generate, args=(place.port, place.tokens(), theirs), daemon=True)
            load.start()
            theirs.close()  # so that an end of the nodes is noticed
            for nodes in range(given.nodes, given.most + 1, given.by):
                held = nodes == given.nodes
                steps.append(run(place, orders, nodes, given.minutes * 60 if held else given.step))
                print(_line(steps[-1]), flush=True)
                if steps[-1].p99_ms > 5000:
                    print("more nodes would only wait longer")
                    break
            orders.send("end")
        finally:
            place.stop()
    RESULT.write_text(json.dumps({"cores": os.cpu_count(), "steps": [asdict(s) for s in steps]}, indent=1) + "\n")
    return 0


def _line(s: Step) -> str:
    return (
        f"{s.nodes:6} nodes {s.seconds:5.0f} s: {s.per_second:6.1f}/s, failed {s.failed}, p50 {s.p50_ms} ms, p99 {s.p99_ms} ms; "
        f"CPU per report: web {s.web_cpu_ms}, database {s.database_cpu_ms}, workers {s.workers_cpu_ms} ms; memory {s.memory_mib} MiB; "
        f"waiting {s.backlog}, unread {s.unread}"
    )


if __name__ == "__main__":
    sys.exit(main())

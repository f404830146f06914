"""`make bench`: figures of this machine at this moment, and ratios between them. It asserts nothing.
`python -m tests.bench pages` runs one part.

Ratios of one run are what to compare between versions; the figures depend on the machine and on what else it does.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.diagnosis import bench as diagnosis
from tests.services import Postgres

SMALL, LARGE = 44, 2000
POOLS = {
    SMALL: "train=group:20,infer=group:6,solo=template:14",
    LARGE: "train=group:1200,infer=group:400,solo=template:396",
}


@contextmanager
def database() -> Iterator[None]:
    """Django on a PostgreSQL of its own, migrated; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="healthboard-bench-") as folder:
        home = Path(folder)
        for name in [n for n in os.environ if n.startswith(("AWS_", "HEALTHBOARD_"))]:
            del os.environ[name]
        server = Postgres.start(home / "postgres")
        os.environ.update(
            HEALTHBOARD_MODE="sandbox", HEALTHBOARD_HOME=folder, HEALTHBOARD_LOG_LEVEL="ERROR", DATABASE_URL=server.url,
            REDIS_URL="redis://127.0.0.1:1/0", DJANGO_SETTINGS_MODULE="healthboard.settings",
        )  # fmt: skip
        try:
            import django

            django.setup()
            from django.core.management import call_command
            from django.db import connection
            from django.test.utils import setup_test_environment

            from healthboard import wake
            from tests import flush

            wake._quiet_until = float("inf")  # no broker here: nothing is sent
            setup_test_environment()
            (home / "static").mkdir()
            call_command("migrate", verbosity=0)
            flush.allow(connection)
            yield
        finally:
            server.stop()


def fresh() -> None:
    from django.core.management import call_command

    from healthboard.policies.versions import ensure_default
    from tests import factories

    call_command("flush", interactive=False, verbosity=0)
    factories.switch()
    ensure_default()


def cost(action: Callable[[], Any], times: int) -> tuple[float, float]:
    """(median wall, mean CPU of this process) of one call, in milliseconds."""
    walls, started = [], time.process_time()
    for _ in range(times):
        begin = time.perf_counter()
        action()
        walls.append((time.perf_counter() - begin) * 1000)
    return statistics.median(walls), (time.process_time() - started) * 1000 / times


# --- node reports ---


def reports() -> None:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from healthboard.api import node_intake
    from healthboard.people import tokens
    from healthboard.people.actors import system
    from tests import factories
    from tests.api.node_helpers import gpu, post, report, xid

    fresh()
    client = Client()
    nodes = [factories.instance(boot_id="", booted_at=None) for _ in range(SMALL)]
    keys = [(n.pk, tokens.issue_node(n, actor=system("bench"))) for n in nodes]
    seq = 0

    def round_(change: str = "") -> None:
        nonlocal seq
        seq += 1
        node_intake.limiter.buckets.clear()
        for pk, token in keys:
            lost = change == "status" and seq % 2
            gpus = [
                gpu(n, uuid=f"GPU-{pk:08d}-0-0-0-{n:04d}", temperature_c=40 + seq % 9, status="lost" if lost and n == 3 else "ok")
                for n in range(8)
            ]  # fmt: skip
            kernel = [xid(seq, 31)] if change == "kernel" else []
            answer = post(client, report(seq, boot_id=f"boot-{pk}", gpus=gpus, kernel=kernel), token)
            assert answer.status_code == 200, answer.content

    def measured(name: str, change: str = "", rounds: int = 5) -> float:
        wall, cpu = cost(lambda: round_(change), rounds)
        with CaptureQueriesContext(connection) as queries:
            round_(change)
        each = len(queries) / SMALL
        print(f"  {name:34} {SMALL * 1000 / wall:7.0f} reports/s  {cpu / SMALL:6.2f} ms CPU  {each:5.1f} queries")
        return cpu

    print("node reports, 8 GPUs each, one web process on PostgreSQL (client's share included)")
    round_()
    same = measured("unchanged")
    changed = measured("a GPU lost or back", "status")
    lines = measured("with a kernel line", "kernel")
    print(f"  ratio to unchanged: changed {changed / same:.1f}, kernel line {lines / same:.1f}")


# --- collecting ---


def collecting() -> None:
    from healthboard import aws
    from healthboard.fleet.models import Instance, Source
    from tests.collect.conftest import ACCOUNTS, REGIONS, start
    from workers.collect import ec2, ecs, store

    print("collecting, one full round of EC2, Auto Scaling and ECS (CPU of the collector, botocore's parsing included)")
    figures = []
    for count in (SMALL, LARGE):
        fresh()
        with tempfile.TemporaryDirectory(prefix="healthboard-bench-") as folder:
            sandbox = start(Path(folder), limit_s=120, HEALTHBOARD_SANDBOX_POOLS=POOLS[count])
            os.environ["HEALTHBOARD_HOME"] = folder
            aws._clients.clear()
            try:
                account = store.account_of(ACCOUNTS[0])

                def round_(owner: Any = account) -> None:
                    Source.objects.update(attempted_at=None)
                    for stage in (ec2, ecs):
                        if not stage.collect(owner, REGIONS[0]):
                            raise RuntimeError(str(list(Source.objects.values("name", "error"))))

                first = cost(round_, 1)
                round_()
                calls = sum(Source.objects.values_list("calls", flat=True))
                later = cost(round_, 3)
                calls = (sum(Source.objects.values_list("calls", flat=True)) - calls) / 3
                held = Instance.objects.filter(gone_at=None).count()
                print(
                    f"  {held:5} instances  first {first[0] / 1000:6.2f} s, {first[1]:7.0f} ms CPU"
                    f"   later {later[0] / 1000:6.2f} s, {later[1]:7.0f} ms CPU, {calls:.0f} calls"
                )
                figures.append(later[1] / held)
            finally:
                sandbox.process.terminate()
                sandbox.process.wait(20)
    print(
        f"  CPU for each instance and round: {figures[0]:.2f} ms and {figures[1]:.2f} ms, ratio {figures[1] / figures[0]:.2f}"
    )


def main(only: list[str]) -> int:
    from tests.bench_pages import pages

    parts = {"reports": reports, "pages": pages, "collecting": collecting}
    if unknown := set(only) - {"evidence", *parts}:
        print(f"no such part: {', '.join(sorted(unknown))}; there are: evidence, {', '.join(parts)}", file=sys.stderr)
        return 2
    if not only or "evidence" in only:
        print("reading evidence")
        diagnosis.main()
    with database():
        for name, part in parts.items():
            if not only or name in only:
                part()
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

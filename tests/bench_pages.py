"""The part of `make bench` that measures pages: each in a small fleet and in one of ten thousand instances.

Figures: the median of the server's time for the whole answer, its queries, and its size as it is sent.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

SMALL, LARGE = 60, 10_000
TIMES = 9
#: the goals at the large size: milliseconds, and KiB compressed
GOAL_MS, GOAL_MAP_MS, GOAL_KIB, GOAL_PAINT_MS = 100, 300, 200, 1000
MORE = {
    "inbox: running": "/?tab=running", "inbox: repaired": "/?tab=repaired", "fleet: by time": "/fleet/?sort=since",
    "fleet: searched": "/fleet/?q=i-0a", "fleet: by a GPU": "/fleet/?q=GPU-0a1", "audit: by person": "/audit/?who=oper",
    "map: by job": "/fleet/map/?group=job", "map: drawn anew": "/fleet/map/", "API: cases": "/api/v1/cases", "API: instances": "/api/v1/instances",
    "API: repairs": "/api/v1/repairs", "API: decisions": "/api/v1/decisions", "API: GPUs": "/api/v1/gpus",
    "API: audit": "/api/v1/audit", "API: statistics": "/api/v1/statistics", "API: breakers": "/api/v1/breakers",
    "API: requests": "/api/v1/requests", "cases: all": "/cases/?state=all", "cases: by code": "/cases/?state=all&code=XID_79",
    "statistics: 400 days": "/statistics/?since=2025-01-01&by=week",
}  # fmt: skip
#: pages that are polled by everybody who has them open: what it takes to say that nothing has changed
POLLED = ("inbox", "case", "fleet", "fleet_map", "instance", "jobs", "repairs", "system", "wall")
_SHOWN = re.compile(rb'"X-Shown": "(\w+)"')


def pages() -> None:
    """Both fleets, one after the other in an empty database."""
    from tests import factories
    from tests.bench import fresh

    figures: dict[str, list[float]] = {}
    for count in (SMALL, LARGE):
        fresh()
        person = factories.person("operator", "operator")
        factories.person("approver", "approver")
        print(f"pages with {count} instances, {_seeded(count)} (median of {TIMES})")
        for name, (wall, row) in _measured(person).items():
            figures.setdefault(name, []).append(wall)
            goal = GOAL_MAP_MS if name.startswith(("fleet_map", "map:")) else GOAL_MS
            print(f"  {name:24} {row}{'' if count == SMALL or wall <= goal else f'  over {goal} ms'}")
        sys.stdout.flush()
    both = {name: seen for name, seen in figures.items() if len(seen) == 2}
    print(f"  ratio {LARGE} to {SMALL} instances: " + ", ".join(f"{n} {b / a:.1f}" for n, (a, b) in both.items()))
    _previewed()
    _painted(person)


def _seeded(count: int) -> str:
    from healthboard.seed.fill import fill

    started, cpu = time.monotonic(), time.process_time()
    made = fill(count)
    spent, cpu = time.monotonic() - started, time.process_time() - cpu
    return f"{made.gpus} GPUs, {made.cases} cases, {made.audit} audit rows, seeded in {spent:.0f} s ({cpu:.0f} s CPU)"


def _measured(person: Any) -> dict[str, tuple[float, str]]:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from healthboard.fleet import drawing
    from tests.pages.addresses import every

    client = Client()
    client.force_login(person)
    found: dict[str, tuple[float, str]] = {}

    def measure(name: str, address: str, **headers: str) -> Any:
        with CaptureQueriesContext(connection) as seen:
            answer = client.get(address, headers=headers)
            asked = len(connection.queries[seen.initial_queries :])
        walls, started = [], time.process_time()
        for _ in range(TIMES):
            if name.endswith("anew"):
                drawing._kept.clear()  # as after every collection round
            begin = time.perf_counter()
            client.get(address, headers=headers)
            walls.append((time.perf_counter() - begin) * 1000)
        cpu = (time.process_time() - started) * 1000 / TIMES
        whole = b"".join(answer.streaming_content) if answer.streaming else answer.content
        packed = len(gzip.compress(whole, 6)) / 1024
        wall = statistics.median(walls)
        over = "" if packed <= GOAL_KIB else f"  over {GOAL_KIB} KiB"
        row = f"{wall:7.1f} ms  {cpu:7.1f} ms CPU  {asked:3} queries  {len(whole) / 1024:6.0f} KiB, {packed:4.0f} sent{over}"
        found[name] = wall, row
        return answer

    for name, address in {**every(), **MORE}.items():
        if client.get(address).status_code != 200:
            continue  # takes a POST, or is not for this person
        answer = measure(name, address)
        if name in POLLED and (shown := _SHOWN.search(answer.content)):
            said = {"HX-Request": "true", "X-Shown": shown[1].decode()}
            if client.get(address, headers=said).status_code == 204:
                measure(f"{name}: polled", address, **said)
    return found


def _previewed() -> None:
    """The fleet default with one setting more, tried on what was kept; it has eight seconds at most."""
    from django.test import Client

    from healthboard.policies.models import Policy
    from tests import factories
    from tests.policies.test_admin import form

    client, default = Client(), Policy.objects.get(is_default=True)
    client.force_login(factories.person("admin", "admin"))
    data = form(name=default.name, workload="", s_mode_ambiguous="observe", _policy=str(default.pk), reason="")
    for days in ("1", "7", "30"):
        begin, cpu = time.perf_counter(), time.process_time()
        answer = client.post("/policies/preview/", {**data, "_days": days})
        wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
        found = answer.context["found"]
        print(f"  preview of {days:>2} days         {wall:7.2f} s  {cpu:7.2f} s CPU  {found.looked} of {found.total} pieces of"
              f" evidence, {found.cases} cases, {found.more + len(found.lines)} otherwise")  # fmt: skip


def _painted(person: Any) -> None:
    """The map in a real browser, from a real server: from the click to the first paint of its cells."""
    from tests.browser.shots import FLAGS
    from tests.factories import PASSWORD
    from tests.services import spare_port

    browser = shutil.which("chromium")
    if browser is None:
        print("  the map in a browser: no chromium here")
        return
    from playwright.sync_api import sync_playwright

    port = spare_port()
    command = [sys.executable, "-m", "gunicorn", "healthboard.wsgi", f"--bind=127.0.0.1:{port}", "--threads=4",
               "--log-level=error"]  # fmt: skip
    server = subprocess.Popen(command, env={**os.environ, "PORT": str(port)})
    try:
        _await(port)
        with sync_playwright() as play:
            page = play.chromium.launch(executable_path=browser, args=FLAGS).new_page()
            page.goto(f"http://127.0.0.1:{port}/accounts/login/")
            page.fill("#id_username", person.get_username())
            page.fill("#id_password", PASSWORD)
            page.click("button.do")
            times = []
            for _ in range(3):
                page.goto(f"http://127.0.0.1:{port}/fleet/map/", wait_until="load")
                times.append(page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                    " - performance.getEntriesByType('navigation')[0].responseStart"
                ))  # fmt: skip
            print(
                f"  the map in a browser: painted {statistics.median(times):.0f} ms after its first byte"
                f" (goal {GOAL_PAINT_MS} ms)"
            )
    finally:
        server.terminate()
        server.wait(10)


def _await(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server did not listen within 20 s")

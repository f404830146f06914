"""Screenshots of every page at 1440 and 390 px, light and dark, from a scratch database.

python tests/browser/shots.py FOLDER [name …]
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def scratch() -> Iterator[None]:
    """An empty database of its own, with Django set up on it."""
    home = Path(tempfile.mkdtemp(prefix="healthboard-shots-"))
    os.environ.update(
        HEALTHBOARD_HOME=str(home),
        HEALTHBOARD_MODE="sandbox",
        DJANGO_SETTINGS_MODULE="healthboard.settings",
        DATABASE_URL=f"sqlite:///{home}/shots.sqlite3",
        REDIS_URL="redis://127.0.0.1:1/0",
        HEALTHBOARD_LOG_LEVEL="ERROR",
        DJANGO_ALLOW_ASYNC_UNSAFE="1",
    )
    sys.path.insert(0, str(ROOT))
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    try:
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main(folder: Path, only: list[str]) -> None:
    with scratch():
        from tests.browser import scene

        found = scene.fill()
        folder.mkdir(parents=True, exist_ok=True)
        with serving() as base:
            _walk(folder, only, pages(found), base)


def pages(found: dict) -> dict[str, str]:
    """name -> address, for the scene."""
    case = f"/cases/{found['case'].pk}/"
    return {
        "sessions": "/accounts/sessions/",
        "password": "/accounts/password/",
        "inbox": "/",
        "inbox-running": "/?tab=running",
        "inbox-held": "/?tab=held",
        "inbox-empty": "/?tab=repaired",
        "case": case,
        "case-running": f"/cases/{found['running'].pk}/",
        "case-undo": f"/cases/{found['undoable'].pk}/",
        "case-group": f"/cases/{found['group'].pk}/",
        "case-hostile": f"/cases/{found['evil'].pk}/",
        "cases": "/cases/?state=all",
        "cases-none": "/cases/?state=closed&code=XID_119&type=p5.48xlarge&end=CLEARED",
        "report": f"/cases/{found['running'].pk}/report/",
        "answer": f"{case}answer/override/",
        "release": f"/cases/{found['group'].pk}/release/",
        "fleet": "/fleet/",
        "fleet-none": "/fleet/?q=nothing-like-it",
        "fleet-columns": "/fleet/?col="
        + "&col=".join(("pool", "account", "cluster", "owner", "ip", "driver", "image")),
        "fleet-map": "/fleet/map/?group=pool",
        "jobs": "/jobs/",
        "jobs-risk": "/jobs/?tab=risk",
        "find": "/find/?q=nothing-like-it",
        "find-several": "/find/?q=train",
        "instance": f"/instances/{found['sick'].pk}/",
        "instance-hostile": f"/instances/{found['evil'].instance_id}/",
        "act": f"/instances/{found['fleet'][0].pk}/act/replace/",
        "pause": f"/instances/{found['fleet'][0].pk}/pause/",
        "repairs": "/repairs/",
        "repair": f"/repairs/{found['running_repair'].pk}/",
        "repair-asks": f"/repairs/{found['asking_repair'].pk}/",
        "audit": "/audit/",
        "statistics": "/statistics/",
        "statistics-none": "/statistics/?since=2020-01-01&until=2020-02-01",
        "explain": "/explain/",
        "system": "/system/",
        "handover": "/handover/",
        "ready": "/ready/",
        "wall": "/wall/",
        "quiet": "/quiet/",
        "condemned": "/condemned/",
        "lift": f"/condemned/{found['condemned'].pk}/lift/",
    }


@contextmanager
def serving() -> Iterator[str]:
    """The web server on the scratch database; its address."""
    from tests.services import spare_port

    port = spare_port()
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "healthboard.wsgi",
        f"--bind=127.0.0.1:{port}",
        "--threads=4",
        "--log-level=error",
    ]
    server = subprocess.Popen(command, cwd=ROOT)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def logged_in(browser: Any, base: str, width: int, theme: str, picture: Path | None = None) -> Any:
    """A page of the admin; `picture`: of the log-in on the way."""
    from tests.factories import PASSWORD

    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme).new_page()
    page.on("console", lambda m: print("console:", m.text) if m.type in ("error", "warning") else None)
    page.goto(f"{base}/accounts/login/")
    if picture:
        page.screenshot(path=picture, full_page=True)
    page.fill("#id_username", "admin")
    page.fill("#id_password", PASSWORD)
    page.click("button.do")
    return page


def _walk(folder: Path, only: list[str], addresses: dict[str, str], base: str) -> None:
    with chromium() as browser:
        for width in (1440, 390):
            for theme in ("light", "dark"):
                login = folder / f"login-{width}-{theme}.png" if not only or "login" in only else None
                page = logged_in(browser, base, width, theme, login)
                for name, address in addresses.items():
                    if only and name not in only:
                        continue
                    answer = page.goto(f"{base}{address}")
                    if answer.status != 200:
                        print(name, answer.status)
                    page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
                page.context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

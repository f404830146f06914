"""Receivers that are real: an HTTP server that keeps what it was sent, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from healthboard.notices.models import Target


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"ok")
        self.before_answer: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/T0/SECRETPART"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.server.paths.append(self.path)
        self.server.before_answer()
        status, headers, text = self.server.answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def target(db, receiver) -> Callable[..., Target]:
    """`target("slack", name=…, **fields)` whose address is the receiver's."""

    def made(kind: str = "webhook", name: str = "", **fields) -> Target:
        defaults = {"address": receiver.url, "secret": "s" * 32 if kind != "slack" else ""}
        return Target.objects.create(name=name or kind, kind=kind, **{**defaults, **fields})

    return made

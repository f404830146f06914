"""The process: HTTP on 127.0.0.1, the ticking world, the nodes that report."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from healthboard.sandbox import bus, control, dispatch, hostile, identity
from healthboard.sandbox import config as settings
from healthboard.sandbox.config import Config
from healthboard.sandbox.fleet.build import build
from healthboard.sandbox.nodes.crew import Crew
from healthboard.sandbox.nodes.exporters import Exporters
from healthboard.sandbox.protocol.parse import MAX_BODY
from healthboard.sandbox.script import Script
from healthboard.sandbox.ticks import tick
from healthboard.sandbox.world import Sandbox

log = logging.getLogger("healthboard.sandbox")
LOOPBACK = ("127.0.0.1", "localhost")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = 120
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self.path.startswith("/_sandbox/"):
            self._control(reading=True)
        elif self.path.startswith("/imds/"):
            self._metadata("GET")
        else:
            self._send(404, "application/json", b'{"error": "not found"}')

    def do_PUT(self) -> None:
        if self._body() is not None:
            self._metadata("PUT")

    def _metadata(self, method: str) -> None:
        status, text = identity.metadata(self.server.sandbox, method, self.path, self.headers)
        self._send(status, "text/plain", text.encode())

    def do_POST(self) -> None:
        if self.path.startswith("/_sandbox/"):
            self._control(reading=False)
            return
        body = self._body()
        if body is None:
            return
        try:
            answer = dispatch.handle(self.server.sandbox, self.headers, body)
        except Exception:
            log.exception("a handler failed")
            answer = dispatch.Answer(500, "application/json", b'{"__type":"InternalFailure","message":"sandbox bug"}')
        if answer.status is None:
            self.close_connection = True
            return
        self._send(answer.status, answer.content_type, answer.body, answer.request_id, answer.query_error)

    def _body(self) -> bytes | None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            self._send(413, "application/json", b'{"__type":"RequestEntityTooLarge","message":"too large"}')
            return None
        return self.rfile.read(length)

    def _control(self, reading: bool) -> None:
        """Loopback only: a page in somebody's browser must not reach it by a rebound name."""
        body = self._body() or b""
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in LOOPBACK or self.headers.get("Origin"):
            self._json(403, {"error": "the control URLs answer to loopback only"})
            return
        path = self.path.removeprefix("/_sandbox/").partition("?")[0]
        if path not in control.ACTIONS or (reading and path not in control.READS):
            self._json(404, {"error": f"no such control: {path}"})
            return
        try:
            given = json.loads(body or b"{}")
            if not isinstance(given, dict):
                raise ValueError("expected an object")
            answer = control.handle(self.server.sandbox, self.server.url, path, given)
            if path == "inject":
                self.server.engine.nudge()
        except ValueError as bad:
            self._json(400, {"error": str(bad)})
            return
        self._json(200, answer)

    def _json(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, content_type: str, body: bytes, request_id: str = "", query_error: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if request_id:
            self.send_header("x-amzn-RequestId", request_id)
        if query_error:
            self.send_header("x-amzn-query-error", query_error)
        if self.close_connection:
            self.send_header("Connection", "close")
        # head and body in one packet: two would wait for each other (Nagle and delayed acknowledgement)
        self._headers_buffer.append(b"\r\n")  # type: ignore[attr-defined]
        head = b"".join(self._headers_buffer)  # type: ignore[attr-defined]
        self._headers_buffer = []
        try:
            self.wfile.write(head + body)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, sandbox: Sandbox, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.sandbox = sandbox
        self.url = sandbox.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.engine: Engine

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            log.exception("connection failed")


class Engine:
    """Everything that runs: start() and stop() are safe to call once each; used in process by tests."""

    def __init__(self, config: Config, clock: Any = None) -> None:
        self.config = config
        self.sandbox = Sandbox(config, clock) if clock else Sandbox(config)
        with self.sandbox.lock:
            for world in self.sandbox.worlds.values():
                if not world.instances:
                    build(world)
                bus.tell(world)  # what is there from the start is known, not told
            self.sandbox.flush()
            hostile.resume(self.sandbox)
        self.crew = Crew(self.sandbox)
        self.script = Script(self.sandbox) if config.script else None
        self.server = Server(self.sandbox, config.port)
        self.server.engine = self
        self.exporters = Exporters(self.sandbox, self.server.server_address[1])
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        return self.server.url

    def start(self, ticking: bool = True) -> None:
        """`ticking` False leaves `step` to the caller, as a test with a clock of its own does."""
        path = self.config.url_file
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(self.url + "\n")
        os.replace(temporary, path)
        loops = [lambda: self.server.serve_forever(poll_interval=0.05)] + ([self._run] if ticking else [])
        for target in loops:
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            self._threads.append(thread)
        if self.config.post:
            self.crew.start()
        if self.config.exporters:
            self.exporters.start()

    def nudge(self) -> None:
        """Tick now instead of at the next beat."""
        self._wake.set()

    def step(self) -> None:
        """One tick of everything."""
        with self.sandbox.lock:
            for world in self.sandbox.worlds.values():
                try:
                    tick(world)
                    if self.sandbox.hostile is not None:
                        self.sandbox.hostile.tick(world)
                    bus.tell(world)
                except Exception:
                    log.exception("tick failed")
            if self.script:
                self.script.step(self.crew)
            due = self.crew.due() if self.config.post else []
            self.sandbox.flush()
        # a report's number is committed before the report leaves, so a restart never sends it twice
        self.crew.send(due)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self.config.tick_s)
            self._wake.clear()
            try:
                self.step()
            except Exception:
                log.exception("step failed")

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self.crew.stop()
        self.exporters.stop()
        self.server.shutdown()
        self.server.server_close()
        for thread in self._threads:
            thread.join(5)
        self.sandbox.close()


def main() -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status; bad settings and a taken port give one line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if settings.is_aws_mode():
        print("the sandbox does not exist in aws mode", file=sys.stderr)
        return 2
    try:
        engine = Engine(settings.from_env())
    except settings.BadSetting as bad:
        print(bad, file=sys.stderr)
        return 2
    except OSError as taken:
        print(f"the sandbox cannot listen on its port: {taken.strerror}", file=sys.stderr)
        return 2
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    engine.start()
    log.info("sandbox on %s, speed %g", engine.url, engine.config.speed)
    done.wait()
    engine.stop()
    return 0

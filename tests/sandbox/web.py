"""A stand-in for the web server's two node URLs, over real HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Web:
    """`known`: instance ids that may enrol (None: all). `ask`: instance -> verbs to ask for once."""

    def __init__(self, home: Path) -> None:
        self.reports: list[tuple[str, dict[str, Any]]] = []
        self.enrolments: list[str] = []
        self.known: set[str] | None = None
        self.ask: dict[str, list[dict[str, str]]] = {}
        self.revoked: set[str] = set()
        self.status = 200
        key = home / "run" / "enrol.key"
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_text("secret")
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = web.answer(self.path, self.headers, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=lambda: self.server.serve_forever(0.1), daemon=True).start()

    def answer(self, path: str, headers: Any, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/api/v1/node/enrol":
            assert headers["X-Sandbox-Key"] == "secret"
            id_ = body["instance_id"]
            self.enrolments.append(id_)
            if self.known is not None and id_ not in self.known:
                return 404, {"error": "unknown instance"}
            return 200, {"token": f"{id_}.{self.enrolments.count(id_)}"}
        token = headers["Authorization"].removeprefix("Bearer ")
        if token in self.revoked:
            return 401, {"error": "revoked"}
        id_ = token.partition(".")[0]
        self.reports.append((id_, body))
        if self.status != 200:
            return self.status, {"error": "not now"}
        return 200, {"accepted": True, "duplicate": False, "requests": self.ask.pop(id_, []), "interval_s": 5}

    def of(self, id_: str) -> list[dict[str, Any]]:
        return [report for who, report in list(self.reports) if who == id_]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

"""The HTTP client of one poster thread."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from healthboard.sandbox.config import Config

TIMEOUT_S = 10
Reply = tuple[int, dict[str, Any]]


class Poster:
    """Keeps one connection open; status 0 means that nobody answered."""

    def __init__(self, config: Config) -> None:
        self.config = config
        parts = urlsplit(config.web_url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.base = parts.path.rstrip("/")
        self.connection: http.client.HTTPConnection | None = None

    def enrol(self, instance: str, account: str, region: str) -> Reply:
        try:
            key = self.config.enrol_key_file.read_text().strip()
        except OSError:
            return 0, {}
        body = {"instance_id": instance, "account": account, "region": region}
        return self._post("/api/v1/node/enrol", {"X-Sandbox-Key": key}, body)

    def report(self, token: str, report: dict[str, Any]) -> Reply:
        return self._post("/api/v1/node/reports", {"Authorization": f"Bearer {token}"}, report)

    def _post(self, path: str, headers: dict[str, str], value: dict[str, Any]) -> Reply:
        body = json.dumps(value, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "healthboard-reporter/1.0.0", **headers}
        for fresh in (False, True):
            if fresh or self.connection is None:
                self._reset()
            connection = self.connection
            assert connection is not None
            try:
                connection.request("POST", self.base + path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
            except TimeoutError:
                self._close()
                return 0, {}
            except (OSError, http.client.HTTPException):
                # a kept connection may have been closed meanwhile: once more on a new one
                self._close()
                continue
            try:
                parsed = json.loads(data or b"{}")
            except ValueError:
                parsed = {}
            return answer.status, parsed if isinstance(parsed, dict) else {}
        return 0, {}

    def _reset(self) -> None:
        self._close()
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)

    def _close(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None

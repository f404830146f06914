"""A person's browser, as the proxy in front passes its requests on: HTTPS outside, the name of the installation, two cookies."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any
from urllib.parse import urlencode

HOST = "healthboard.example.com"
_FIELD = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
PROXY = {"Host": HOST, "X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}


class Browser:
    def __init__(self, port: int) -> None:
        self.port, self.cookies = port, {}

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection.request(method, path, body, {**PROXY, "Cookie": cookies, **headers})
        answer = connection.getresponse()
        for line in answer.headers.get_all("Set-Cookie") or ():
            name, _, rest = line.partition("=")
            assert name.startswith("__Host-") and "Secure" in rest, line
            self.cookies[name] = rest.partition(";")[0]
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def send(self, page: str, form: str, **fields: str) -> None:
        """Open a page, fill in one of its forms, submit it."""
        status, text = self.ask("GET", page)
        assert status == 200, (status, text[:500])
        assert form == page or f'action="{form}"' in text, f"{page} has no form that goes to {form}"
        token = _FIELD.search(text).group(1)
        status, text = self.ask(
            "POST", form, urlencode({**fields, "csrfmiddlewaretoken": token}), Referer=f"https://{HOST}{page}",
            **{"Content-Type": "application/x-www-form-urlencoded"},
        )  # fmt: skip
        assert status in (302, 303), (status, re.sub(r"<[^>]+>|\s+", " ", text)[-1500:])

    def api(self, path: str, token: str) -> list[dict[str, Any]]:
        status, text = self.ask("GET", f"/api/v1/{path}", Authorization=f"Bearer {token}")
        return json.loads(text)["items"] if status == 200 else []

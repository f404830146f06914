"""Talking to the running sandbox, for the commands."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from healthboard.sandbox.config import from_env


class Unreachable(RuntimeError):
    """The sandbox isn't running; one line."""


class Refused(RuntimeError):
    """The sandbox said no; one line."""


def call(action: str, body: dict[str, Any] | None = None, home: Path | None = None) -> dict[str, Any]:
    """GET without a body, POST with one. Raises Unreachable or Refused."""
    url_file = home / "run" / "sandbox.url" if home else from_env().url_file
    try:
        url = url_file.read_text().strip()
    except OSError:
        raise Unreachable(f"the sandbox is not running ({url_file} is not there)") from None
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/_sandbox/{action}", data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            text = json.load(error).get("error", str(error))
        except ValueError:
            text = str(error)
        raise Refused(text) from None
    except OSError:
        raise Unreachable(f"the sandbox is not running (no answer at {url})") from None

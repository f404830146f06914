"""Bodies of requests that are too large: told from the length before anything is read, and read away."""

from __future__ import annotations

from django.http import HttpRequest

#: how much of an oversized body is read away, so that its sender gets to see the answer
DRAIN_LIMIT = 32 * 1024 * 1024


def length(request: HttpRequest) -> int:
    """What the request says about the size of its body, in bytes; 0 where it says nothing usable."""
    try:
        return int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0


def drain(request: HttpRequest) -> None:
    left = min(length(request), DRAIN_LIMIT)
    try:
        while left > 0 and (part := request.read(min(left, 65536))):
            left -= len(part)
    except OSError:
        pass

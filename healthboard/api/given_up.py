"""A node's report whose sender has hung up while it waited for a thread is not taken: the node sends it again anyway.

Otherwise a server that is too slow for its nodes spends its time on reports that nobody waits for any more, and the ones
that somebody does wait for come too late as well: it would never recover by itself.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

log = logging.getLogger(__name__)
PATH = "/api/v1/node/reports"
#: seconds between two lines in the log
TELL_EVERY_S = 60.0


class GivenUp:
    """Asks gunicorn's socket. Where there is none, or the system cannot say, every report is taken."""

    def __init__(self, rest: Callable[[HttpRequest], HttpResponse]) -> None:
        self.rest = rest
        self.count, self.told_at = 0, -TELL_EVERY_S

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info != PATH or not hung_up(request.META.get("gunicorn.socket")):
            return self.rest(request)
        self.count += 1
        now = time.monotonic()
        if now - self.told_at >= TELL_EVERY_S:
            log.warning(
                "%d reports were given up by their nodes before they could be taken: the web servers are too few or too slow",
                self.count,
            )
            self.count, self.told_at = 0, now
        answer = HttpResponse(status=503, headers={"Retry-After": "15"})
        answer._has_been_logged = True  # Django's own line for each 5xx
        return answer


def hung_up(socket: Any) -> bool:
    """Whether the other side has closed, even where what it sent was not read yet."""
    flag = getattr(select, "POLLRDHUP", 0)  # Linux
    if socket is None or not flag:
        return False
    try:
        poll = select.poll()
        poll.register(socket, flag)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # it is closed on this side
        return True

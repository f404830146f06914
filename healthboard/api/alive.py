"""`/healthz` and `/readyz` answer whoever asks by whatever name: a load balancer and a container's own check ask by address,
which is none of HEALTHBOARD_HOSTS. Nothing that they say depends on the name."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from healthboard.api import health

ANSWERS = {"/healthz": health.healthz, "/readyz": health.readyz}


class Alive:
    """Stands before whatever looks at the name or the session, and after what sets the headers of every answer."""

    def __init__(self, rest: Callable[[HttpRequest], HttpResponse]) -> None:
        self.rest = rest

    def __call__(self, request: HttpRequest) -> HttpResponse:
        view = ANSWERS.get(request.path_info)
        return view(request) if view else self.rest(request)

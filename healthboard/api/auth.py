"""Who calls the API: the holder of a bearer token, or the browser's session with its CSRF token."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer
from ninja.security.base import AuthBase
from ninja.throttling import AuthRateThrottle
from ninja.utils import check_csrf

from healthboard.pages import READS
from healthboard.people import access, tokens
from healthboard.people.actors import Actor
from healthboard.people.limits import address_of
from healthboard.people.web import recent
from healthboard.refusals import NotAllowed


class Token(HttpBearer):
    """A token that is sent decides alone: a wrong one is refused even where a session would do."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        user = tokens.verify_api(token)
        if user is None:
            tokens.refused_api(token, address_of(request))
            raise HttpError(401, "This token is unknown, expired or revoked.")
        request.api_recent = False  # a token proves nobody's presence
        return _reader(request, user)


class Session(AuthBase):
    """The log-in of the pages; a request that changes something needs the CSRF token."""

    openapi_type = "apiKey"
    openapi_in = "cookie"
    openapi_name = "session"

    def __call__(self, request: HttpRequest) -> Any:
        if not request.user.is_authenticated:
            return None
        if check_csrf(request):
            raise HttpError(403, "The CSRF token is missing or wrong.")
        request.api_recent = recent(request)
        return _reader(request, request.user)


def _reader(request: HttpRequest, user: Any) -> Any:
    if request.method in READS:
        access.read_once(user)
    return user


class Throttle(AuthRateThrottle):
    """Per person and web process; as a rule well above what a page or a dashboard asks. What works for seconds each time
    has a `name` and `rate` of its own."""

    def __init__(self, rate: str = "1200/m", name: str = "api") -> None:
        super().__init__(rate)
        self.name = name

    def get_cache_key(self, request: HttpRequest) -> str:
        return self.cache_format % {"scope": self.name, "ident": getattr(request.auth, "pk", "")}


def actor_of(request: HttpRequest) -> Actor:
    user = request.auth
    return Actor(
        name=user.get_username(),
        via="api",
        user=user,
        request_id=getattr(request, "request_id", ""),
        recent=request.api_recent,
        token=getattr(user, "api_token", None),
    )


def may_view(request: HttpRequest) -> None:
    if reason := access.why_not(request.auth, "view"):
        raise NotAllowed(reason)

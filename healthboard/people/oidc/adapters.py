"""Where allauth asks what we want: who is let in, by which name, and with which roles. None of its own pages is served."""

from __future__ import annotations

import logging
import re
from typing import Any, NoReturn

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import transaction
from django.http import HttpRequest
from django.shortcuts import render

from healthboard.audit.record import record
from healthboard.people import limits
from healthboard.people.actors import Actor, system
from healthboard.people.oidc import roles
from healthboard.people.oidc.session import Session

log = logging.getLogger(__name__)


class Accounts(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def get_login_stages(self) -> list[str]:
        return []

    def pre_login(self, request: HttpRequest, user: Any, **more: Any) -> Any:
        """The roles are as the groups say before the person is in."""
        answer = super().pre_login(request, user, **more)
        if answer is None:
            roles.renew(user, roles.groups_of(request.oidc))
        return answer

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Its messages are about pages that do not exist here."""

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> NoReturn:
        refuse(request, "This log-in is switched off.")

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is sent: the provider knows its people."""


class Social(DefaultSocialAccountAdapter):
    def get_requests_session(self) -> Session:
        return Session()

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Known by issuer and subject; somebody new is let in where a group of theirs has a role."""
        groups = roles.groups_of(request.oidc)
        if sociallogin.is_existing:
            return
        if settings.OIDC.rules and not roles.wanted(groups):
            refuse(request, "None of your groups has a role here: ask an admin of healthboard.")

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def authenticate_by_email(self, sociallogin: Any) -> None:
        """An address proves nobody: a local user is never taken over."""

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> Any:
        user = super().populate_user(request, sociallogin, {**data, "email": ""})
        user.username = free_name(data["username"])
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user = sociallogin.user
        user.set_unusable_password()
        told = sociallogin.account.extra_data
        with transaction.atomic():
            sociallogin.save(request)
            text = f"{user} made from {told['iss']}, subject {told['sub']}"[:250]
            record("people.made", f"user:{user.pk}", text, actor=system("oidc"), payload=told)
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> NoReturn:
        log.warning("log-in at %s failed: %s %s", settings.OIDC.issuer, error, exception)
        begun = exception is not None or "state" in (extra_context or {})
        refuse(
            request, "The log-in was not completed. Try again; if it fails again, log in with a local password.",
            counts=begun,
        )  # fmt: skip


def refuse(request: HttpRequest, why: str, *, counts: bool = True) -> NoReturn:
    """Say so, on a page that leads back to the log-in. `counts`: towards the limit; not what was never begun here, which
    any page that a person visits could send in their name. The record takes so many of a place and no more, and of what
    was never begun so many of all places together: an address costs a stranger nothing."""
    address = limits.address_of(request)
    if counts:
        limits.provider_failed(limits.origin_of(request, None))
    page = render(request, "registration/oidc_refused.html", {"why": why}, status=403)
    if _often(limits.line_of(address), limits.PER_NAME) or (not counts and _often("", limits.PER_ADDRESS)):
        raise ImmediateHttpResponse(page)
    actor = Actor(name="anonymous", via="web", request_id=getattr(request, "request_id", ""))
    who = str((getattr(request, "oidc", None) or {}).get("sub", "somebody"))[:100]
    with transaction.atomic():
        record("login.refused", "login:oidc", f"{who} from {address}: {why}"[:250], actor=actor)
    raise ImmediateHttpResponse(page)


def _often(place: str, most: int) -> bool:
    """Count one that was refused there; whether there were more than so many lately."""
    key = f"oidc-refused:{place}"
    cache.add(key, 0, limits.WINDOW.total_seconds())
    return cache.incr(key) > most


def free_name(wanted: str) -> str:
    """A user name that nobody has, near the wanted one."""
    stem = re.sub(r"[^\w.@+-]", "_", wanted)[:140] or "user"
    known = set(get_user_model().objects.filter(username__istartswith=stem).values_list("username", flat=True))
    taken = {name.lower() for name in known}
    return next(name for name in (stem, *(f"{stem}-{n}" for n in range(2, 10_000))) if name.lower() not in taken)

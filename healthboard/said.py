"""Django's messages to people, in a cookie that is named as all of ours are."""

from __future__ import annotations

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


class Cookie(CookieStorage):
    @property
    def cookie_name(self) -> str:
        return f"{settings.COOKIE_PREFIX}messages"


class Said(FallbackStorage):
    storage_classes = (Cookie, SessionStorage)

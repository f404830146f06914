"""Headless Chromium against the live server. Each page's console must stay silent: a refused script or style shows there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from healthboard import clock
from healthboard.people.web import AUTH_AT
from tests.factories import PASSWORD


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    """Messages are only wake-ups: the broker is known to be away, so that no click waits for it."""
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


#: what a page's policy refuses, into the console, where `visit` finds it
REFUSED = "addEventListener('securitypolicyviolation', e => console.error('CSP: ' + e.effectiveDirective + ' ' + e.blockedURI))"


@pytest.fixture
def people(transactional_db) -> dict:
    """An installation that has seen nothing yet, and its log-ins."""
    from tests import factories as make
    from tests.browser import scene as made

    make.switch()
    return made.people()


@pytest.fixture
def scene(transactional_db) -> dict:
    from tests.browser import scene as made

    return made.fill(12)


@pytest.fixture
def visit(chromium, live_server) -> Iterator[Callable]:
    """`visit("operator", "/fleet/", **context options)` returns a page there, after a log-in whose form is only filled in
    `by_form`: it costs as much as two pages. The page's `complaints` must be empty at the end."""
    opened = []

    def log_in(name: str, address: str = "/", *, by_form: bool = False, **options):
        context = chromium.new_context(
            base_url=live_server.url, **{"viewport": {"width": 1440, "height": 900}, **options}
        )
        context.set_default_timeout(8000)
        context.add_init_script(REFUSED)
        page = context.new_page()
        page.complaints = []
        page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        if by_form:
            page.goto(f"/accounts/login/?next={address}")
            page.fill("#id_username", name)
            page.fill("#id_password", PASSWORD)
            page.click("button.do")
            page.wait_for_url(f"**{address}")
        else:
            client = Client()
            client.force_login(User.objects.get(username=name))
            session = client.session
            session[AUTH_AT] = clock.now().isoformat()
            session.save()
            name = settings.SESSION_COOKIE_NAME
            context.add_cookies([{"name": name, "value": session.session_key, "url": live_server.url}])
            page.goto(address)
        opened.append((context, page))
        return page

    yield log_in
    complaints = [text for _, page in opened for text in page.complaints if "status of 4" not in text]
    for context, _ in opened:
        context.close()
    assert complaints == []

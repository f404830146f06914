"""Log-in by OpenID Connect, against a real provider, in the browser."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth import get_user_model
from playwright.sync_api import expect

from healthboard.audit.models import AuditRow
from healthboard.people import grants
from healthboard.people.models import Grant
from healthboard.people.oidc import config
from tests import factories, oidc

pytestmark = pytest.mark.django_db(transaction=True)
User = get_user_model()


@pytest.fixture(scope="module")
def provider(request, live_server, tmp_path_factory):
    """Groups are told in the id token, or (`lean`) by the user info alone."""
    lean = getattr(request, "param", "") == "lean"
    started = oidc.Provider(f"{live_server.url}/accounts/oidc/callback/", tmp_path_factory.mktemp("oidc"), lean=lean)
    yield started
    started.stop()


@pytest.fixture
def board(provider, live_server, settings, chromium, monkeypatch):
    """A browser, and an installation whose people come from the provider."""
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))
    factories.switch()
    rules = config.rules("sre=operator, leads=approver@*/us-east-1/train, platform=admin")
    settings.URL = live_server.url
    settings.OIDC = config.Provider(
        provider.issuer, "healthboard", oidc.SECRET, "Example SSO", "groups", ("openid", "profile"), rules
    )
    context = chromium.new_context(base_url=live_server.url, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(8000)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" and "CSP" in m.text else None)
    yield page
    context.close()
    assert page.complaints == []


def log_in(page, name: str, where: str = "/accounts/login/?next=/repairs/") -> None:
    page.goto(where)
    page.get_by_role("link", name=re.compile("Log in (again )?by Example SSO")).click()
    at_provider(page, name)


def at_provider(page, name: str) -> None:
    page.fill("input[name=login]", name)
    page.fill("input[name=password]", "whatever")
    page.click("button[type=submit]")


def roles(name: str) -> set[tuple[str, str, str]]:
    return set(Grant.objects.filter(user__username=name).values_list("role", "region", "pool"))


def test_a_log_in_is_recent_once_the_provider_has_asked_anew(board, provider):
    provider.knows("ada", "platform")
    log_in(board, "ada")
    board.wait_for_url("**/repairs/")
    where = "/accounts/again/?next=/system/"
    board.goto(where)
    expect(board.get_by_text("Password of")).to_have_count(0)
    log_in(board, "ada", where)  # its session there lives: it must ask all the same
    board.wait_for_url("**/system/")
    board.fill("#acting-why", "watch first")
    board.get_by_role("button", name="Switch acting off").click()
    expect(board.get_by_text("Acting is off: healthboard only observes.")).to_be_visible()


def test_a_silent_log_in_is_not_recent(board, provider):
    provider.knows("ada", "platform")
    log_in(board, "ada")
    board.wait_for_url("**/repairs/")
    board.goto("/system/")
    board.fill("#acting-why", "watch first")
    board.get_by_role("button", name="Switch acting off").click()
    board.wait_for_url("**/accounts/again/**")


def test_somebody_without_a_group_that_counts_is_not_let_in(board, provider):
    provider.knows("eve", "unrelated")
    log_in(board, "eve")
    expect(board.get_by_role("alert")).to_contain_text("None of your groups has a role here")
    assert not User.objects.exists() and AuditRow.objects.get(verb="login.refused").summary.startswith("eve from")


def test_a_local_user_of_that_name_is_not_taken_over(board, provider):
    admin = factories.person("admin", "ada")
    grants.sync(admin)
    provider.knows("ada", "sre", email=admin.email or "ada@example.com")
    log_in(board, "ada")
    board.wait_for_url("**/repairs/")
    assert set(User.objects.values_list("username", flat=True)) == {"ada", "ada-2"}
    assert roles("ada-2") == {("operator", "", "")} and roles("ada") == {("admin", "", "")}


def test_who_was_switched_off_stays_out(board, provider):
    provider.knows("ona", "sre")
    log_in(board, "ona")
    board.wait_for_url("**/repairs/")
    User.objects.filter(username="ona").update(is_active=False)
    board.context.clear_cookies()
    log_in(board, "ona")
    expect(board.get_by_role("alert")).to_contain_text("switched off")
    board.goto("/repairs/")
    board.wait_for_url("**/accounts/login/**")


def test_an_answer_that_this_browser_did_not_ask_for_is_refused(board, provider, live_server):
    provider.knows("ona", "sre")
    board.goto(f"{live_server.url}/accounts/oidc/callback/?code=stolen&state=made-up")
    expect(board.get_by_role("alert")).to_contain_text("not completed")
    seen = []
    board.on("request", lambda r: seen.append(r.url) if "/callback/" in r.url else None)
    log_in(board, "ona")
    board.wait_for_url("**/repairs/")
    board.goto(seen[0])  # the same answer again
    expect(board.get_by_role("alert")).to_contain_text("not completed")
    assert AuditRow.objects.filter(verb="login.refused").count() == 2


def test_an_id_token_with_another_nonce_is_refused(board, provider, monkeypatch):
    from healthboard.people.oidc import client

    provider.knows("ona", "sre")
    made = iter(["one", "another"])
    monkeypatch.setattr(client, "digest", lambda nonce: next(made))  # what was sent is not what is looked for
    log_in(board, "ona")
    expect(board.get_by_role("alert")).to_contain_text("not completed")
    assert not User.objects.exists()


@pytest.mark.parametrize("provider", ["full", "lean"], indirect=True)
def test_a_person_comes_in_with_the_roles_of_their_groups_and_loses_them_with_the_group(board, provider):
    provider.knows("ona", "sre", "leads", "unrelated", given_name="Ona")
    log_in(board, "ona")
    board.wait_for_url("**/repairs/")
    ona = User.objects.get(username="ona")
    assert not ona.has_usable_password() and not ona.is_staff and not ona.is_superuser
    assert roles("ona") == {("operator", "", ""), ("approver", "us-east-1", "train")}
    assert AuditRow.objects.filter(verb="grant.given", actor="healthboard:oidc").count() == 2
    Grant.objects.create(user=ona, role="viewer")  # by an admin of ours: theirs to take
    provider.knows("ona", "sre")
    board.context.clear_cookies()
    log_in(board, "ona")
    board.wait_for_url("**/repairs/")
    assert roles("ona") == {("operator", "", ""), ("viewer", "", "")}
    assert User.objects.count() == 1 and AuditRow.objects.filter(verb="grant.taken").count() == 1

"""What the environment may say about the provider, and what its addresses do without one."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from datetime import timedelta

import jwt
import pytest
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client, override_settings

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.config import BadSetting
from healthboard.people import limits, tokens
from healthboard.people.models import Grant
from healthboard.people.oidc import client as oidc_client
from healthboard.people.oidc import config, roles
from tests import factories

GIVEN = {"ISSUER": "https://sso.example.com/", "CLIENT_ID": "board", "CLIENT_SECRET": "s"}


def given(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setenv(f"HEALTHBOARD_OIDC_{name}", value)


def test_it_is_off_unless_an_issuer_is_named(monkeypatch):
    assert config.provider() is None
    given(monkeypatch, **GIVEN)
    told = config.provider()
    assert (told.issuer, told.claim, told.scope) == ("https://sso.example.com", "groups", ("openid", "profile"))


@pytest.mark.parametrize(
    "values",
    [
        {"ISSUER": "http://sso.example.com"},
        {"ISSUER": "https://sso.example.com/?x=1"},
        {"ISSUER": "https://me:pw@sso.example.com"},
        {"ISSUER": "ftp://127.0.0.1"},
        {"CLIENT_SECRET": ""},
        {"GROUPS": "sre=king"},
        {"GROUPS": "sre"},
        {"GROUPS": "sre=viewer@12"},
    ],
)
def test_what_cannot_be_used_stops_the_start(monkeypatch, values):
    given(monkeypatch, **{**GIVEN, **values})
    with pytest.raises(BadSetting) as caught:
        config.provider()
    assert "\n" not in str(caught.value) and "HEALTHBOARD_OIDC" in str(caught.value)


@pytest.mark.parametrize(("process", "needed"), [("web", True), ("all", True), ("beat", False), ("reader", False)])
def test_the_secret_is_needed_where_pages_are_served_and_the_other_settings_may_be_told_to_all(
    monkeypatch, process, needed
):
    given(monkeypatch, **{**GIVEN, "CLIENT_SECRET": ""})
    monkeypatch.setenv("HEALTHBOARD_PROCESS", process)
    if not needed:
        assert config.provider().client_id == "board"
        return
    with pytest.raises(BadSetting, match="_CLIENT_SECRET"):
        config.provider()


def test_plain_http_is_for_the_machine_itself_and_the_sandbox_alone(monkeypatch):
    assert config.fits("http://127.0.0.1:9/auth") and config.fits("http://[::1]:9/")
    assert not config.fits("http://10.0.0.1/auth") and not config.fits("//127.0.0.1/")
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    assert not config.fits("http://127.0.0.1:9/auth") and config.fits("https://sso.example.com/auth")


def test_groups_are_read_with_their_places():
    told = config.rules("a b=viewer,\nops=approver@123456789012/us-east-1/train-a/b, all=admin@*/*/*")
    assert [(r.group, r.role, r.account, r.region, r.pool) for r in told] == [
        ("a b", "viewer", "", "", ""),
        ("ops", "approver", "123456789012", "us-east-1", "train-a/b"),
        ("all", "admin", "", "", ""),
    ]


def test_another_issuers_subjects_are_other_people(monkeypatch):
    given(monkeypatch, **GIVEN)
    one = config.provider().key
    given(monkeypatch, ISSUER="https://other.example.com")
    assert config.provider().key != one


@pytest.mark.django_db
@pytest.mark.parametrize("where", ["login", "callback"])
def test_without_a_provider_its_addresses_are_not_there(client, where):
    assert client.get(f"/accounts/oidc/{where}/").status_code == 404
    assert "oidc" not in client.get("/accounts/login/").content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["signup/", "email/", "password/reset/", "3rdparty/", "social/signup/", "confirm-email/", "reauthenticate/"]
)
def test_none_of_the_librarys_own_pages_is_served(client, path):
    assert client.get(f"/accounts/{path}").status_code == 404


@pytest.fixture
def configured(settings, monkeypatch, db):
    cache.clear()
    given(monkeypatch, **GIVEN)
    settings.OIDC = config.provider()
    return settings.OIDC


def test_who_failed_too_often_waits(client, configured):
    for number in range(limits.PER_ACCOUNT + 10):
        limits.provider_failed(f"10.0.{number}.1")
    assert not limits.provider_limited("127.0.0.1"), "what others do elsewhere locks nobody out"
    for _ in range(limits.PER_PROVIDER + 10):
        limits.provider_failed("127.0.0.1")
    for where in ("login", "callback"):
        assert client.get(f"/accounts/oidc/{where}/").status_code == 429
    assert client.post("/accounts/oidc/login/").status_code == 405
    [told] = AuditRow.objects.filter(verb="login.limited")
    assert told.summary == "30 log-ins at the provider from 127.0.0.1 were not completed"
    with clock.virtual(clock.now() + limits.WINDOW + timedelta(seconds=1)):
        assert not limits.provider_limited("127.0.0.1"), "more of them do not make it longer"


def test_a_browser_that_was_let_in_before_does_not_wait_for_others_behind_its_address(client, configured):
    factories.person("operator", "otto")
    client.post("/accounts/login/", {"username": "otto", "password": factories.PASSWORD})
    for _ in range(limits.PER_PROVIDER):
        limits.provider_failed("127.0.0.1")
    unasked = "/accounts/oidc/callback/?code=x&state=y"
    assert client.get(unasked).status_code == 403, "judged, not waiting"
    assert Client().get(unasked).status_code == 429
    mark = limits.origin_of(client.get("/accounts/login/").wsgi_request, None)
    for _ in range(limits.PER_PROVIDER):
        limits.provider_failed(mark)
    assert client.get(unasked).status_code == 429, "it is counted by itself"


def test_the_log_in_form_cannot_count_for_the_provider(client, configured):
    for name in (limits.PROVIDER, limits.PROVIDER.lower()):
        for _ in range(limits.PER_PROVIDER):
            limits.failed(name, "127.0.0.1")
        client.post("/accounts/login/", {"username": name, "password": "x"})
    assert not limits.provider_limited("127.0.0.1")


def test_answers_that_nobody_here_asked_for_count_nothing_and_fill_no_record(client, configured):
    for _ in range(limits.PER_PROVIDER + 5):
        assert client.get("/accounts/oidc/callback/?code=x&state=y").status_code == 403
    assert not limits.provider_limited("127.0.0.1")
    assert 0 < AuditRow.objects.filter(verb="login.refused").count() <= limits.PER_NAME
    for number in range(2 * limits.PER_ADDRESS):  # a network of IPv6 is one place, and there are many of those as well
        for place in (f"2001:db8::{number:x}", f"2001:db8:{number:x}::1"):
            client.get("/accounts/oidc/callback/?code=x&state=y", REMOTE_ADDR=place)
    refused = AuditRow.objects.filter(verb="login.refused")
    assert refused.filter(summary__contains="from 2001:db8::").count() <= limits.PER_NAME
    assert refused.count() == limits.PER_ADDRESS


KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


def claims(**changed):
    now = int(time.time())
    base = {"iss": "https://sso.example.com", "aud": "board", "sub": "s1", "iat": now, "exp": now + 60,
            "nonce": oidc_client.digest("n")}  # fmt: skip
    return {name: value for name, value in {**base, **changed}.items() if value is not None}


@pytest.fixture
def exchange(configured, rf, monkeypatch):
    """The part of the exchange that judges an id token, with the issuer's key at hand."""
    made = oidc_client.Client(rf.get("/"))
    made.state, made.did_fetch_access_token = {"nonce": "n"}, True
    made.__dict__["openid_config"] = {"issuer": configured.issuer, "jwks_uri": "https://sso.example.com/keys"}
    monkeypatch.setattr(
        oidc_client.jwtkit,
        "fetch_key",
        lambda raw, url, lookup: (jwt.get_unverified_header(raw)["alg"], KEY.public_key()),
    )
    return made


def test_a_good_id_token_says_who_it_is(exchange):
    raw = jwt.encode(claims(), KEY, "RS256", {"kid": "1"})
    assert exchange._claims(raw, exchange.get_provider().app)["sub"] == "s1"


@pytest.mark.parametrize(
    "changed",
    [
        {"nonce": None},
        {"nonce": "n"},
        {"iss": "https://evil.example.com"},
        {"aud": "another"},
        {"aud": ["board", "another"], "azp": "another"},
        {"exp": 1},
        {"iat": int(time.time()) - 3600},
        {"sub": ""},
        {"sub": "x" * 192},
        {"sub": 7},
    ],
)
def test_an_id_token_that_is_not_the_answer_is_refused(exchange, changed):
    raw = jwt.encode(claims(**changed), KEY, "RS256", {"kid": "1"})
    with pytest.raises(OAuth2Error):
        exchange._claims(raw, exchange.get_provider().app)


def test_an_id_token_signed_by_another_or_by_nobody_is_refused(exchange):
    app = exchange.get_provider().app
    for raw in (
        jwt.encode(claims(), OTHER, "RS256", {"kid": "1"}),
        jwt.encode(claims(), "s" * 32, "HS256", {"kid": "1"}),
        jwt.encode(claims(), None, "none", {"kid": "1"}),
        None,
    ):
        with pytest.raises(OAuth2Error):
            exchange._claims(raw, app)


@pytest.fixture
def ona(configured):
    """Somebody whose only role comes from a group, and a bearer token of theirs."""
    configured = replace(configured, rules=config.rules("sre=admin"))
    user = factories.person("", "ona")
    with override_settings(OIDC=configured):
        roles.renew(user, frozenset({"sre"}))
        yield user, tokens.issue_api(user, actor=factories.actor(user), name="laptop")


def asked(token):
    return Client().get("/api/v1/cases", headers={"Authorization": f"Bearer {token}"})


def test_who_logs_in_at_the_provider_no_more_has_no_role_from_it_either(ona):
    user, token = ona
    later = clock.now() + timedelta(days=31)
    with clock.virtual(clock.now() + timedelta(days=29)):
        assert asked(token).status_code == 200
    with clock.virtual(later):
        answer = asked(token)
        assert answer.status_code == 403 and "last log-in by single sign-on is too long ago" in answer.json()["detail"]
        roles.renew(user, frozenset({"sre"}))
        assert asked(token).status_code == 200 and Grant.objects.count() == 1
    with clock.virtual(later + timedelta(days=31)):
        call_command("give-role", "ona", "admin", stdout=io.StringIO())  # the first admin again: no other one counts
    with clock.virtual(later + timedelta(days=365)):
        assert asked(token).status_code == 200, "what was given by hand does not lapse"
        assert Grant.objects.count() == 1


def test_how_long_roles_from_groups_count_is_said_by_the_environment(ona, settings, monkeypatch):
    for wrong in ("0", "nan", "1e12", "a month"):
        given(monkeypatch, DAYS=wrong)
        with pytest.raises(BadSetting, match="HEALTHBOARD_OIDC_DAYS"):
            config.days()
    given(monkeypatch, DAYS="2")
    settings.OIDC_DAYS = config.days()
    with clock.virtual(clock.now() + timedelta(days=3)):
        assert asked(ona[1]).status_code == 403


@pytest.mark.django_db
def test_the_first_admin_is_given_by_whoever_has_the_machine_and_the_next_by_an_admin():
    for name in ("ada", "otto"):
        factories.person("", name)
    out = io.StringIO()
    with pytest.raises(CommandError, match="under whose name"):
        call_command("give-role", "otto", "operator")
    call_command("give-role", "ada", "admin", stdout=out)
    assert out.getvalue() == "ada: admin for everything\n"
    for call in (["otto", "admin"], ["otto", "viewer", "--as", "otto"], ["nobody", "admin"]):
        with pytest.raises(CommandError) as caught:
            call_command("give-role", *call)
        assert caught.value.returncode == 2
    call_command("give-role", "otto", "operator", "--pool", "train", "--as", "ada", stdout=out)
    assert Grant.objects.get(user__username="otto").pool == "train"

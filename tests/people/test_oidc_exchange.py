"""The exchange with a provider that is small enough to answer as no good one does."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings as django_settings
from django.core.cache import cache
from django.test import Client

from healthboard import clock
from healthboard.people import limits
from healthboard.people.models import Grant
from healthboard.people.oidc import client as oidc_client
from healthboard.people.oidc import config
from tests import factories

pytestmark = pytest.mark.django_db
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))


class Issuer(BaseHTTPRequestHandler):
    """`server.claims` are what the next id token says beside the usual; `server.asked` which paths were asked for."""

    def do_GET(self) -> None:
        here = f"http://127.0.0.1:{self.server.server_port}"
        self.answer({
            "/.well-known/openid-configuration": {
                "issuer": here, "authorization_endpoint": f"{here}/auth", "token_endpoint": f"{here}/token",
                "jwks_uri": f"{here}/keys",
            },
            "/keys": {"keys": [{**PUBLIC, "kid": "1", "alg": "RS256"}]},
        }[self.path])  # fmt: skip

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        now, here = int(time.time()), f"http://127.0.0.1:{self.server.server_port}"
        told = {"iss": here, "aud": "board", "sub": "ona", "iat": now, "exp": now + 60, "groups": ["sre"]}
        raw = jwt.encode({**told, **self.server.claims}, KEY, "RS256", {"kid": "1"})
        self.answer({"access_token": "a", "token_type": "bearer", "id_token": raw})

    def answer(self, value: dict) -> None:
        self.server.asked.append(self.path)
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args) -> None:
        """Nothing to tell."""


@pytest.fixture
def issuer(settings, monkeypatch):
    cache.clear()
    monkeypatch.setattr(oidc_client, "_described", {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    server.claims, server.asked = {}, []
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    settings.OIDC = config.Provider(
        f"http://127.0.0.1:{server.server_port}", "board", "s", "Example SSO", "groups", ("openid",),
        config.rules("sre=operator"),
    )  # fmt: skip
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def begin(client, query=""):
    answer = client.get(f"/accounts/oidc/login/{query}")
    assert answer.status_code == 302, answer.content
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.url).query).items()}


def log_in(client, issuer, query="", **claims):
    sent = begin(client, query)
    issuer.claims = {"nonce": sent["nonce"], **claims}
    return client.get(f"/accounts/oidc/callback/?code=c&state={sent['state']}")


AGAIN = "?again=1&next=/system/"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({}, "does not say when it asked"),
        ({"auth_time": "now"}, "does not say when it asked"),
        ({"auth_time": True}, "does not say when it asked"),
        ({"auth_time": float("inf")}, "does not say when it asked"),
        ({"auth_time": float("nan")}, "does not say when it asked"),
        ({"auth_time": 1_700_000_000}, "asked last at 22:13 UTC on 14 November 2023"),
    ],
)
def test_to_log_in_again_says_why_it_did_not_help(client, issuer, told, says):
    assert log_in(client, issuer, "?next=/system/", **told).url == "/system/", "a first log-in asks for no word of it"
    answer = log_in(client, issuer, AGAIN, **told)
    text = answer.content.decode()
    assert answer.status_code == 403 and says in text and "Not logged in anew" in text
    assert client.get("/system/").status_code == 200, "they are logged in all the same"


def test_to_log_in_again_goes_on_where_the_provider_asked(client, issuer):
    assert log_in(client, issuer, AGAIN, auth_time=int(time.time())).url == "/system/"


def test_what_wanted_the_fresh_log_in_is_said_to_be_undone_yet(client, issuer):
    factories.switch(stopped=True)
    log_in(client, issuer, "?next=/system/")
    Grant.objects.create(user_id=client.session["_auth_user_id"], role="admin")
    assert client.post("/system/resume/", {"reason": "it was a drill"}).status_code == 303
    assert log_in(client, issuer, AGAIN, auth_time=1_700_000_000).status_code == 403
    assert log_in(client, issuer, AGAIN, auth_time=int(time.time())).url == "/system/"
    text = client.get("/system/").content.decode()
    assert "You are logged in anew. Nothing was done yet: send it again." in text and 'value="it was a drill"' in text


def test_the_providers_description_is_asked_for_once(client, issuer, monkeypatch):
    for _ in range(2):
        begin(Client())
    assert issuer.asked == ["/.well-known/openid-configuration"]
    with clock.virtual(clock.now() + oidc_client.DESCRIBED + timedelta(seconds=1)):
        begin(client)
    assert len(issuer.asked) == 2, "what it says may change"


def test_a_slow_provider_holds_some_threads_and_no_more(client, issuer, monkeypatch):
    monkeypatch.setattr(oidc_client, "_room", threading.BoundedSemaphore(1))
    with oidc_client._room:
        answer = client.get("/accounts/oidc/login/")
    assert answer.status_code == 502 and "does not answer as it should" in answer.content.decode()
    assert issuer.asked == []
    begin(client)
    with oidc_client._room:
        begin(client)  # what is known needs nobody


def test_whom_the_provider_let_in_once_is_counted_by_their_browser(client, issuer):
    log_in(client, issuer)
    mark = client.cookies[django_settings.KNOWN_COOKIE_NAME].value
    for _ in range(limits.PER_PROVIDER):
        limits.provider_failed("127.0.0.1")
    client.post("/accounts/logout/")
    assert Client().get("/accounts/oidc/login/").status_code == 429
    assert log_in(client, issuer).status_code == 302
    assert client.cookies[django_settings.KNOWN_COOKIE_NAME].value == mark


def test_a_log_in_at_the_provider_takes_nobodys_mark_away(client, issuer):
    factories.person("operator", "otto")
    client.post("/accounts/login/", {"username": "otto", "password": factories.PASSWORD})
    client.post("/accounts/logout/")
    log_in(client, issuer)
    request = client.get("/accounts/login/").wsgi_request
    assert limits.origin_of(request, "otto").startswith("known:")


@pytest.mark.parametrize(
    ("acr", "let_in"), [("mfa", True), ("phr", True), ("pwd", False), (None, False), (["mfa"], False)]
)
def test_a_log_in_that_is_weaker_than_wanted_is_refused(client, issuer, settings, acr, let_in):
    settings.OIDC = dataclasses.replace(settings.OIDC, acr=("mfa", "phr"))
    assert begin(client)["acr_values"] == "mfa phr"
    answer = log_in(client, issuer, **({} if acr is None else {"acr": acr}))
    assert (answer.status_code == 302) is let_in and ("_auth_user_id" in client.session) is let_in


def test_a_description_of_another_issuer_is_refused(client, issuer, settings):
    """The address answers, and says that it is somebody else."""
    here = settings.OIDC.issuer
    settings.OIDC = dataclasses.replace(settings.OIDC, issuer=here.replace("127.0.0.1", "localhost"))
    answer = client.get("/accounts/oidc/login/")
    assert answer.status_code == 502 and issuer.asked == ["/.well-known/openid-configuration"]

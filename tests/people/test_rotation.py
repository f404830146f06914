"""Secrets are changed while people are logged in and nodes enrol; see docs/security/secrets.md."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from django.core import signing

from healthboard.notices.models import Target
from healthboard.people import enrolment, limits
from tests import factories
from tests.notices.conftest import receiver
from workers.repair.steps import checkpoint

__all__ = ["receiver"]

pytestmark = pytest.mark.django_db
OLD, NEW = "an-old-key-that-is-long-enough-for-one-" * 2, "a-new-key-that-is-long-enough-for-one-" * 2
PAGE, LOGIN = "/accounts/sessions/", "/accounts/login/"


@pytest.fixture
def begun(settings, client):
    """A browser that logged in, and a nonce that was handed out, both under the old key."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, []
    factories.person("operator", name="otto")
    sent = {"username": "otto", "password": factories.PASSWORD}
    assert client.post(LOGIN, sent).status_code == 302 and client.get(PAGE).status_code == 200
    return client, enrolment.challenge()


def known(client, rf, settings) -> bool:
    request = rf.get(LOGIN)
    request.COOKIES[settings.KNOWN_COOKIE_NAME] = client.cookies[settings.KNOWN_COOKIE_NAME].value
    return limits.origin_of(request, "otto").startswith("known:")


def test_the_key_is_changed_and_nobody_notices(begun, settings, rf):
    client, nonce = begun
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, [OLD]
    assert client.get(PAGE).status_code == 200 and known(client, rf, settings)
    enrolment._check_nonce(nonce)
    settings.SECRET_KEY_FALLBACKS = []  # later: who came meanwhile is signed by the new key
    assert client.get(PAGE).status_code == 200


def test_an_old_key_that_was_taken_away_counts_no_more(begun, settings, rf):
    client, nonce = begun
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = NEW, []
    assert client.get(PAGE).status_code == 302 and not known(client, rf, settings)
    with pytest.raises(enrolment.NotEnrolled, match="answer a challenge of this server"):
        enrolment._check_nonce(nonce)


def test_what_is_signed_for_one_thing_is_not_taken_for_another(begun, settings, rf):
    client, _ = begun
    mark = client.cookies[settings.KNOWN_COOKIE_NAME].value
    with pytest.raises(enrolment.NotEnrolled):
        enrolment._check_nonce(mark)
    request = rf.get(LOGIN)
    request.COOKIES[settings.KNOWN_COOKIE_NAME] = signing.dumps(["otto", "x"])
    assert not limits.origin_of(request, "otto").startswith("known:")


def test_two_tokens_of_the_metrics_count_while_one_is_changed(client, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "the-old-one, the-new-one")
    told = {
        token: client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).status_code
        for token in ("the-old-one", "the-new-one", "the-old-one, the-new-one", "", "é")
    }
    assert told == {"the-old-one": 200, "the-new-one": 200, "the-old-one, the-new-one": 401, "": 401, "é": 401}


def test_the_call_before_draining_is_signed_by_both_live_secrets(receiver):
    receiver.answer = (200, {}, b'{"answer": "ready"}')
    Target.objects.create(
        name="train",
        kind=Target.Kind.WEBHOOK,
        address=receiver.url,
        secret="n" * 32,
        secret_before="o" * 32,
        enabled=True,
    )
    assert checkpoint._post("train", "checkpoint-1-1", b"{}")[0] == checkpoint.READY
    ((headers, body),) = receiver.got
    said = headers["x-healthboard-timestamp"].encode() + b"." + body
    signed = ",".join(f"v1={hmac.new(s * 32, said, hashlib.sha256).hexdigest()}" for s in (b"n", b"o"))
    assert headers["x-healthboard-signature"] == signed

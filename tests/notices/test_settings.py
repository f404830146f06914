from __future__ import annotations

import pytest

from healthboard import config
from healthboard.config import BadSetting


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")


def test_links_begin_with_what_is_set_else_with_what_is_known(monkeypatch):
    assert config.url() == "http://127.0.0.1:8000"
    monkeypatch.setenv("HEALTHBOARD_URL", "https://board.example.com/")
    assert config.url() == "https://board.example.com"


def test_a_real_installation_knows_its_origin_or_nothing(aws, monkeypatch):
    assert config.url() == ""
    monkeypatch.setenv("HEALTHBOARD_ORIGINS", "https://a.example.com,https://b.example.com")
    assert config.url() == "https://a.example.com"


@pytest.mark.parametrize(
    "value", ["board.example.com", "ftp://x/", "https://", "https://x/?a=b", "javascript:alert(1)"]
)
def test_an_address_that_cannot_be_one_is_one_clear_line(monkeypatch, value):
    monkeypatch.setenv("HEALTHBOARD_URL", value)
    with pytest.raises(BadSetting, match="HEALTHBOARD_URL"):
        config.url()


@pytest.mark.parametrize(
    "name, value",
    [
        ("HOST", "mail.example.com"),
        ("HOST", "localhost"),
        ("HOST", "10.0.0.1"),
        ("TLS", "maybe"),
        ("PORT", "99999"),
        ("PORT", "x"),
    ],
)
def test_a_mail_server_that_cannot_be_is_one_clear_line(monkeypatch, name, value):
    monkeypatch.setenv(f"HEALTHBOARD_SMTP_{name}", value)
    with pytest.raises(BadSetting, match=f"HEALTHBOARD_SMTP_{name}"):
        config.smtp()


def test_starttls_is_what_is_used_unless_something_else_is_said(aws, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_SMTP_HOST", "mail.internal")
    found = config.smtp()
    assert (found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"], found["EMAIL_PORT"]) == (True, False, 587)
    monkeypatch.setenv("HEALTHBOARD_SMTP_TLS", "tls")
    found = config.smtp()
    assert (found["EMAIL_USE_TLS"], found["EMAIL_USE_SSL"], found["EMAIL_PORT"]) == (False, True, 465)

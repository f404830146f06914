"""What each kind of receiver gets, over a real connection."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import subprocess

import pytest
from aiosmtpd.controller import Controller
from django.core import mail

from healthboard.notices import outbox
from healthboard.notices.models import Delivery, Notice
from tests import factories as make
from tests.services import spare_port
from workers.notify import send

HOSTILE = '<!channel> <http://evil|click> & "x" \r\nBcc: all@example.com'


def say(kind: str = "case_waiting", key: str = "k1", **fields) -> Notice:
    values = {
        "subject": "XID_119 on GPU 3: reboot?",
        "thread": "case:12",
        "link": "/cases/12/",
        "body": "GSP timed out",
    }
    outbox.announce(key=key, kind=kind, **{**values, **fields})
    return Notice.objects.get(key=key)


def test_slack_gets_a_small_card_with_a_link(target, receiver, settings):
    settings.URL = "https://board.example.com"
    target("slack")
    say(facts={"Machine": "i-0abc", "Plan": "Drain and reboot", "Expires": "2030-01-01 10:00 UTC"}, pool="train")
    assert send.sweep() == 1
    headers, body = receiver.got[0]
    card = json.loads(body)
    text = json.dumps(card, ensure_ascii=False)
    assert headers["content-type"] == "application/json" and receiver.paths == ["/hook/T0/SECRETPART"]
    assert "<https://board.example.com/cases/12/|Open in healthboard>" in text
    for part in ("A case waits for a person", "i-0abc", "Drain and reboot", "2030-01-01 10:00 UTC", "train"):
        assert part in text
    assert {block["type"] for block in card["blocks"]} == {"header", "section", "context"}  # no button: chat only links


def test_what_a_node_says_calls_nobody_and_makes_no_link(target, receiver):
    target("slack")
    say(subject=HOSTILE * 30, body=HOSTILE * 200, facts={"What": HOSTILE * 100})
    assert send.sweep() == 1
    card = json.loads(receiver.got[0][1])
    marked = [card["text"]] + [f["text"] for b in card["blocks"] for f in b.get("fields", b.get("elements", []))]
    assert not any("<!channel>" in text or "<http://evil" in text for text in marked)
    assert len(card["blocks"][0]["text"]["text"]) <= 150 and all(len(text) < 2000 for text in marked)


def test_pagerduty_triggers_acknowledges_and_resolves_one_incident(target, receiver, settings):
    settings.URL = "https://board.example.com"
    target("pagerduty", secret="R0UT1NGKEY", minimum="warning", kinds=["case_waiting"])
    receiver.answer = (202, {}, b'{"status":"success"}')
    say(severity="critical", facts={"Machine": "i-0abc"}, account="111122223333", pool="train")
    for kind in ("case_decided", "case_closed"):
        outbox.follow("case:12", key=kind, kind=kind, subject="went on")
    assert send.sweep() == 3
    events = [json.loads(body) for _, body in receiver.got]
    assert [e["event_action"] for e in events] == ["trigger", "acknowledge", "resolve"]
    assert {e["dedup_key"] for e in events} == {"https://board.example.com case:12"}
    assert {e["routing_key"] for e in events} == {"R0UT1NGKEY"}
    first = events[0]["payload"]
    assert (first["severity"], first["source"], first["group"]) == ("critical", "i-0abc", "train")
    assert events[0]["links"] == [{"href": "https://board.example.com/cases/12/", "text": "Open in healthboard"}]


def test_pagerduty_is_not_told_of_the_end_of_what_it_never_heard_of(target, receiver):
    target("pagerduty")
    say("case_decided")
    assert send.sweep() == 0 and receiver.got == []


def test_a_webhook_is_signed_over_time_and_body_by_both_live_secrets(target, receiver):
    target(secret="new" * 12, secret_before="old" * 12)
    say(workloads=["llm-train"])
    assert send.sweep() == 1
    headers, body = receiver.got[0]
    at = headers["x-healthboard-timestamp"]
    want = [
        "v1=" + hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        for secret in ("new" * 12, "old" * 12)
    ]
    assert headers["x-healthboard-signature"].split(",") == want
    assert abs(int(at) - make.ago(0).timestamp()) < 60
    message = json.loads(body)
    assert headers["x-healthboard-delivery"] == str(message["delivery"]) == str(Delivery.objects.get().pk)
    assert (message["kind"], message["event"], message["thread"]) == ("case_waiting", "trigger", "case:12")
    assert message["workloads"] == ["llm-train"] and message["url"].endswith("/cases/12/")


class Box:
    def __init__(self) -> None:
        self.got = []

    async def handle_DATA(self, server, session, envelope) -> str:
        self.got.append(envelope)
        return "250 OK"


@pytest.fixture
def smtp(settings):
    """A real mail server on loopback; `smtp(tls=...)` gives its box."""
    running = []

    def start(handler=None, **options) -> Box:
        box = handler or Box()
        server = Controller(box, hostname="127.0.0.1", port=spare_port(), **options)
        server.start()
        running.append(server)
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        settings.DEFAULT_FROM_EMAIL = "healthboard@example.com"
        return box

    yield start
    for server in running:
        server.stop()


def test_mail_reaches_people_and_addresses_and_groups_a_matter(target, smtp, settings):
    box, otto = smtp(), make.person("operator", "otto")
    otto.email = "otto@example.com"
    otto.save()
    target("email", address="team@example.com").people.add(otto)
    say(subject=HOSTILE, facts={"Machine": "i-0abc"})
    assert send.sweep() == 2
    assert sorted(e.rcpt_tos[0] for e in box.got) == ["otto@example.com", "team@example.com"]
    text = box.got[0].content.decode()
    assert "Message-ID: <delivery-" in text and "References: <case-12@healthboard>" in text
    assert "i-0abc" in text and "/cases/12/" in text
    assert all(len(e.rcpt_tos) == 1 for e in box.got) and "\nBcc:" not in text.split("\r\n\r\n")[0]
    assert mail.outbox == []  # by the real backend


def test_starttls_is_used_and_its_certificate_is_verified(target, smtp, settings, tmp_path, monkeypatch):
    key, cert = tmp_path / "key", tmp_path / "cert"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", cert, "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    box = smtp(tls_context=context, require_starttls=True)
    settings.EMAIL_USE_TLS = True
    target("email", address="team@example.com")
    say()
    assert send.sweep() == 0  # nobody vouches for it
    row = Delivery.objects.get()
    assert row.state == "PENDING" and "TLS with 127.0.0.1 failed" in row.error and "HEALTHBOARD_SMTP_TLS" in row.error
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    Delivery.objects.update(next_at=make.ago(1))
    assert send.sweep() == 1 and len(box.got) == 1


def test_without_starttls_no_mail_is_sent_in_the_clear(target, smtp, settings):
    box = smtp()
    settings.EMAIL_USE_TLS = True
    target("email", address="team@example.com")
    say()
    assert send.sweep() == 0 and box.got == []
    assert "does not offer STARTTLS" in Delivery.objects.get().error


def test_an_address_that_is_refused_does_not_hold_the_others_up(target, smtp):
    class Picky(Box):
        async def handle_RCPT(self, server, session, envelope, address, options) -> str:
            if address.startswith("gone"):
                return "550 no such user"
            envelope.rcpt_tos.append(address)
            return "250 OK"

    box = smtp(Picky())
    target("email", address="gone@example.com\nteam@example.com")
    say()
    assert send.sweep() == 1 and box.got[0].rcpt_tos == ["team@example.com"]
    assert "does not take mail for this address" in Delivery.objects.get(to="gone@example.com").error


@pytest.mark.parametrize(
    "host, why", [("", "No mail server"), ("mail.example.com", "loopback only"), ("localhost", "loopback only")]
)
def test_the_sandbox_mails_to_loopback_only(target, settings, monkeypatch, host, why):
    monkeypatch.setattr("socket.create_connection", lambda *a, **k: pytest.fail(f"connected to {a}"))
    settings.EMAIL_HOST = host
    target("email", address="team@example.com")
    say()
    assert send.sweep() == 0
    row = Delivery.objects.get()
    assert row.state == "FAILED" and why in row.error

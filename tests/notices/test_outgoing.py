"""Where a message may go: never inside, never elsewhere than checked, never for long."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest
import trustme

from healthboard.notices import outgoing
from healthboard.notices.outgoing import NotDelivered, Refused, post
from tests.tls import listening

INSIDE = [
    "127.0.0.1", "10.1.2.3", "172.16.0.9", "192.168.1.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "::1", "::", "fd00:ec2::254", "fe80::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:1::1", "ff02::1",
]  # fmt: skip


@pytest.fixture
def real(settings):
    settings.SANDBOX = False


@pytest.fixture
def names(monkeypatch):
    """What names resolve to, and which were asked; nothing leaves the machine."""
    asked, answers, literal = [], {}, socket.getaddrinfo

    def getaddrinfo(host, port, *args, **kwargs):
        if outgoing._literal(host):
            return literal(host, port, *args, **kwargs)
        asked.append(host)
        if host not in answers:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in answers[host]]

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", getaddrinfo)
    return asked, answers


@pytest.fixture
def no_connection(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"connected to {args}")

    monkeypatch.setattr(outgoing.socket, "create_connection", refuse)


@pytest.mark.parametrize("ip", INSIDE)
def test_a_name_that_leads_inside_is_refused_before_any_connection(real, names, no_connection, ip):
    names[1]["hooks.example.com"] = ["93.184.215.14", ip]  # one bad address spoils the name
    with pytest.raises(Refused, match=r"hooks\.example\.com is an? (internal|multicast|address that hides)"):
        post("https://hooks.example.com/x", b"{}", {})


@pytest.mark.parametrize(
    "url",
    [
        *[f"https://{f'[{ip}]' if ':' in ip else ip}/x" for ip in INSIDE],
        "http://hooks.example.com/x", "ftp://hooks.example.com/", "https://", "hooks.example.com", "",
        "https://user:pass@hooks.example.com/", "https://hooks.example.com/#part", "https://hooks.example.com:99999/",
        "https://hooks.example.com/a b", "https://hooks.example.com/\r\nX: y", "https://[::1", "https://2130706433/x",
    ],
)  # fmt: skip
def test_what_is_no_good_address_is_refused(real, names, no_connection, url):
    names[1]["2130706433"] = ["127.0.0.1"]  # as the system's resolver reads it
    with pytest.raises(Refused):
        post(url, b"{}", {})


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/x",
        "http://localhost:9/x",
        "http://10.0.0.1/x",
        "http://[::ffff:10.0.0.1]/",
        "https://1.1.1.1/",
    ],
)
def test_the_sandbox_reaches_literal_loopback_only_and_asks_no_name(names, no_connection, url):
    with pytest.raises(Refused, match="loopback"):
        post(url, b"{}", {})
    assert names[0] == []


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("hooks.slack.com", True), ("HOOKS.slack.com", True), ("events.pagerduty.com", True), ("pagerduty.com", False),
        ("evil-pagerduty.com", False), ("hooks.slack.com.evil.example", False), ("example.com", False), ("1.1.1.1", False),
    ],
)  # fmt: skip
def test_where_hosts_are_listed_no_other_is_reached(real, names, no_connection, monkeypatch, host, allowed):
    monkeypatch.setenv("HEALTHBOARD_OUTGOING_HOSTS", "hooks.slack.com, .pagerduty.com")
    with pytest.raises((Refused, NotDelivered)) as refused:
        post(f"https://{host}/x", b"{}", {})
    assert ("HEALTHBOARD_OUTGOING_HOSTS" in str(refused.value)) is not allowed
    assert bool(names[0]) is allowed, "what is not listed is not even looked up"


def test_a_host_is_resolved_once_and_the_checked_address_is_the_one_connected_to(real, names, monkeypatch, tls):
    """A second look-up would answer with another address: there is none. The certificate is still the name's."""
    port, trusted = tls
    asked, answers = names
    answers["hooks.example.com"] = ["127.0.0.1"]
    monkeypatch.setattr(outgoing, "why_not", lambda address: "")  # as if it were a public one
    monkeypatch.setattr(outgoing, "context", lambda: ssl.create_default_context(cafile=trusted))
    connect = socket.create_connection
    went = []

    def watched(address, timeout):
        went.append(address[0])
        answers["hooks.example.com"] = ["169.254.169.254"]
        return connect(address, timeout)

    monkeypatch.setattr(outgoing.socket, "create_connection", watched)
    answer = post(f"https://hooks.example.com:{port}/x", b"{}", {})
    assert (answer.status, answer.text, went) == (200, f"hooks.example.com:{port}", ["127.0.0.1"])
    assert asked.count("hooks.example.com") == 1


def test_a_certificate_of_another_name_is_refused(real, names, monkeypatch, tls):
    port, trusted = tls
    names[1]["other.example.com"] = ["127.0.0.1"]
    monkeypatch.setattr(outgoing, "why_not", lambda address: "")
    monkeypatch.setattr(outgoing, "context", lambda: ssl.create_default_context(cafile=trusted))
    with pytest.raises(NotDelivered, match="certificate is not good"):
        post(f"https://other.example.com:{port}/x", b"{}", {})
    monkeypatch.setattr(outgoing, "context", ssl.create_default_context)  # the system's authorities don't know it
    with pytest.raises(NotDelivered, match="certificate is not good"):
        post(f"https://other.example.com:{port}/x", b"{}", {})


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def tls(tmp_path, authority):
    """A real TLS server with a certificate for hooks.example.com; it answers with the Host header."""

    def talk(one: ssl.SSLSocket) -> None:
        head = one.recv(65536).decode()
        while not head.endswith("{}"):
            head += one.recv(65536).decode()
        host = head.split("Host: ")[1].split("\r\n")[0]
        one.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(host)}\r\n\r\n{host}".encode())

    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with listening(authority.issue_cert("hooks.example.com"), talk) as port:
        yield port, trusted


def test_a_redirect_is_not_followed(receiver):
    receiver.answer = (307, {"Location": "http://127.0.0.1:1/"}, b"")
    assert post(receiver.url, b"{}", {}).status == 307
    assert len(receiver.got) == 1


def test_no_proxy_of_the_environment_is_asked(receiver, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert post(receiver.url, b"{}", {}).status == 200


def test_an_endless_answer_is_cut(receiver):
    receiver.answer = (200, {}, b"x" * 5_000_000)
    assert len(post(receiver.url, b"{}", {}).text) == outgoing.MOST


def test_one_that_answers_a_byte_now_and_then_is_given_up(monkeypatch):
    monkeypatch.setattr(outgoing, "WHOLE_S", 0.5)
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        one, _ = listener.accept()
        try:
            for byte in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000:
                one.sendall(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(NotDelivered, match=r"within 0\.5 s"):
        post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})
    assert time.monotonic() - began < 3
    listener.close()


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_nonsense_is_a_failure_in_words(said):
    listener = socket.create_server(("127.0.0.1", 0))

    def speak() -> None:
        one, _ = listener.accept()
        one.recv(65536)
        one.sendall(said)
        one.close()

    threading.Thread(target=speak, daemon=True).start()
    with pytest.raises(NotDelivered):
        post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {})
    listener.close()


def test_nobody_there_is_a_failure_in_words():
    with pytest.raises(NotDelivered, match="the connection failed: Connection refused"):
        post("http://127.0.0.1:1/", b"{}", {})

"""Hosts that the environment names: looked up once, checked, and the checked address is the one connected to.

The provider of log-ins, the mail server and STS are asked by a library each; what holds for one must hold for all.
"""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
from types import SimpleNamespace

import pytest
import requests
import trustme

from healthboard import config, egress
from healthboard.config import BadSetting
from healthboard.notices.senders.email import Backend
from healthboard.people import identity
from healthboard.people.oidc import session
from tests import tls

NAME = "inside.example.com"
METADATA = ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0",
            "224.0.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1")  # fmt: skip


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")


@pytest.fixture
def net(aws, monkeypatch):
    """What the name resolves to, how often it was asked for, and where connections went."""
    told = SimpleNamespace(addresses=["127.0.0.1"], asked=0, went=[])
    look, connect = socket.getaddrinfo, socket.create_connection

    def getaddrinfo(host, port, *args, **kwargs):
        if host != NAME:
            return look(host, port, *args, **kwargs)
        told.asked += 1
        answers, told.addresses = told.addresses, ["169.254.169.254"]  # a second look-up would lead elsewhere
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in answers]

    def create_connection(address, *args, **kwargs):
        told.went.append(address[0])
        return connect(address, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "create_connection", create_connection)
    return told


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def server(authority, tmp_path, request):
    """Answers one TLS connection after the other with what `said` holds; its certificate is for the name above, or for
    the one of the parameter."""
    told = SimpleNamespace(
        said=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", heard=[], ca=str(tmp_path / "ca.pem")
    )
    authority.cert_pem.write_to_path(told.ca)

    def talk(one: ssl.SSLSocket) -> None:
        if not told.said.startswith(b"220"):
            told.heard.append(one.recv(65536))
        one.sendall(told.said)

    with tls.listening(authority.issue_cert(getattr(request, "param", NAME)), talk) as told.port:
        yield told


def by_oidc(port: int) -> None:
    with session.Session() as asked:
        assert asked.get(f"https://{NAME}:{port}/").json() == {}


def by_sts(port: int) -> None:
    asked = identity._Checked(NAME, port, timeout=5, context=ssl.create_default_context())
    with contextlib.closing(asked):
        asked.request("GET", "/")
        assert asked.getresponse().status == 200


def by_mail(port: int) -> None:
    backend = Backend(host=NAME, port=port, use_ssl=True, use_tls=False, timeout=5)
    with contextlib.suppress(smtplib.SMTPServerDisconnected):  # after its greeting it says no more
        backend.open()


CLIENTS = {"oidc": by_oidc, "sts": by_sts, "mail": by_mail}


@pytest.fixture(params=CLIENTS)
def client(request, server, monkeypatch):
    if request.param == "mail":
        server.said = b"220 ready\r\n"
    monkeypatch.setenv("SSL_CERT_FILE", server.ca)
    monkeypatch.setenv("HEALTHBOARD_OIDC_CA", server.ca)
    return CLIENTS[request.param]


def test_a_name_is_looked_up_once_and_the_checked_address_is_connected_to(net, client, server):
    client(server.port)
    assert (net.asked, net.went) == (1, ["127.0.0.1"])


@pytest.mark.parametrize("address", METADATA)
def test_a_name_that_leads_to_the_metadata_is_never_connected_to(net, client, server, address):
    net.addresses = ["127.0.0.1", address]  # one bad address spoils the name
    with pytest.raises((OSError, requests.RequestException)):
        client(server.port)
    assert net.went == [] and net.asked == 1


def test_a_certificate_of_an_unknown_authority_is_refused(net, client, server, monkeypatch, tmp_path):
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "other.pem"))
    monkeypatch.delenv("HEALTHBOARD_OIDC_CA")
    with pytest.raises((ssl.SSLError, requests.exceptions.SSLError)):
        client(server.port)
    assert server.heard == []


@pytest.mark.parametrize("server", ["other.example.com", "127.0.0.1"], indirect=True)
def test_a_certificate_of_another_name_is_refused_also_one_of_the_address(net, client, server):
    with pytest.raises((ssl.SSLError, requests.exceptions.SSLError)):
        client(server.port)
    assert net.went == ["127.0.0.1"] and server.heard in ([], [b""])


def test_an_address_that_nobody_answers_at_is_followed_by_the_next_of_the_same_name(net, client, server):
    net.addresses = ["127.9.9.9", "127.0.0.1"]
    client(server.port)
    assert net.went == ["127.9.9.9", "127.0.0.1"] and net.asked == 1


def test_the_sandbox_reaches_loopback_alone():
    assert egress.look_up("127.0.0.1", 1) == ["127.0.0.1"]
    for address in ("10.0.0.1", "1.1.1.1", "169.254.169.254"):
        with pytest.raises(egress.Refused, match="not a loopback address"):
            egress.look_up(address, 1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: https://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", "never followed"),
        (b"HTTP/1.1 307 Moved\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n", "never followed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 2_000_000, "more than"),
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_of_the_provider_no_redirect_is_followed_and_no_endless_answer_read(
    net, server, monkeypatch, said, why, method
):
    server.said = said
    monkeypatch.setenv("HEALTHBOARD_OIDC_CA", server.ca)
    with session.Session() as asked, pytest.raises(requests.RequestException, match=why):
        getattr(asked, method)(f"https://{NAME}:{server.port}/")
    assert net.went == ["127.0.0.1"] and len(server.heard) == 1


def test_no_proxy_and_no_netrc_of_the_environment_is_used_for_the_provider(net, server, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text(f"machine {NAME} login a password b\n")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HEALTHBOARD_OIDC_CA", server.ca)
    by_oidc(server.port)
    assert b"uthorization" not in server.heard[0]


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_a_database_elsewhere_is_reached_by_tls_with_its_certificate_checked_alone(aws, mode):
    with pytest.raises(BadSetting, match=f"sslmode={mode}"):
        config.database_tls("db.example.com", {"sslmode": mode})


def test_what_the_url_says_of_the_databases_authority_is_kept(aws, monkeypatch):
    assert config.database_tls("db.example.com", {}) == {"sslmode": "verify-full", "sslrootcert": "system"}
    told = config.database_tls("db.example.com", {"sslmode": "verify-full", "sslrootcert": "/ca.pem"})
    assert told == {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}
    for host in ("127.0.0.1", "::1", "/var/run/postgresql", ""):
        assert config.database_tls(host, {"sslmode": "disable"}) == {}
    monkeypatch.setenv("HEALTHBOARD_MODE", "sandbox")
    assert config.database_tls("db.example.com", {}) == {}


def test_mail_is_not_sent_in_the_clear_to_another_host(aws, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_SMTP_TLS", "off")
    monkeypatch.setenv("HEALTHBOARD_SMTP_HOST", "mail.example.com")
    with pytest.raises(BadSetting, match="HEALTHBOARD_SMTP_TLS=off"):
        config.smtp()
    monkeypatch.setenv("HEALTHBOARD_SMTP_HOST", "127.0.0.1")
    assert config.smtp()["EMAIL_USE_TLS"] is False

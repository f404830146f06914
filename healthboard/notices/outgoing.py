"""One POST to an address that a person typed in: to where it may go, once, and never longer or more than it should.

https only; the host is resolved once, every address of it is checked, and the connection goes to a checked one, so that
a name cannot point elsewhere a moment later. No redirect is followed, no proxy asked. In sandbox mode nothing but
literal loopback addresses is reached, also by http.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from healthboard import config
from healthboard.egress import DISGUISED, Address

#: seconds for one step of the conversation, and for all of it
STEP_S, WHOLE_S = 5.0, 10.0
MOST = 64 * 1024


class Refused(Exception):
    """Nothing was sent: the address is not one that may be reached. The message says why, never the whole address."""


class NotDelivered(Exception):
    """It was tried and there is no answer; the message says what stood in the way."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    text: str  # its beginning


@dataclass(frozen=True, slots=True)
class Place:
    """A checked URL: the name for TLS and the Host header, and the one address that is connected to."""

    https: bool
    host: str
    port: int
    path: str
    address: str


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Raises Refused before, NotDelivered after a connection was tried. Takes at most `WHOLE_S` after the look-up."""
    place = look_up(url)
    connection = _Pinned(place)
    watch = threading.Timer(WHOLE_S, connection.cut)
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", place.path, body, {"User-Agent": "healthboard", "Connection": "close", **headers})
        answer = connection.getresponse()
        text = answer.read(MOST).decode("utf-8", "replace")
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
    except ssl.SSLCertVerificationError as error:
        raise NotDelivered(f"its certificate is not good: {error.verify_message}") from error
    except TimeoutError as error:
        raise NotDelivered(f"no whole answer within {WHOLE_S:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        if connection.was_cut:
            raise NotDelivered(f"no whole answer within {WHOLE_S:g} s") from error
        said = getattr(error, "strerror", None) or type(error).__name__
        raise NotDelivered(f"the connection failed: {said}") from error
    finally:
        watch.cancel()
        connection.close()


def look_up(url: str) -> Place:
    """Check a URL, resolve its host once and choose the address to connect to. Raises Refused or NotDelivered."""
    scheme, host, port, path = parts(url)
    found = [ipaddress.ip_address(host)] if _literal(host) else _resolve(host, port)
    for address in found:
        if why := why_not(address):
            raise Refused(f"{host} is {why}")
    return Place(scheme == "https", host, port, path, str(found[0]))


def parts(url: str) -> tuple[str, str, int, str]:
    """(scheme, host, port, path with query) of a URL that may be used at all; nothing is looked up. Raises Refused."""
    try:
        split = urllib.parse.urlsplit(url)
        host, port = (split.hostname or "").rstrip("."), split.port
    except ValueError:
        raise Refused("it is not an address") from None
    if any(c.isspace() or not c.isprintable() or ord(c) > 126 for c in url):
        raise Refused("it holds characters that no address has")
    if split.scheme not in ("http", "https") or not host:
        raise Refused("it must begin with https://")
    if split.username is not None or split.password is not None or split.fragment:
        raise Refused("it must not hold a name, a password or a fragment")
    if settings.SANDBOX and not config.loopback(host):
        raise Refused("the sandbox reaches literal loopback addresses only, such as http://127.0.0.1:9000/")
    if split.scheme == "http" and not settings.SANDBOX:
        raise Refused("it must begin with https://")
    if not _listed(host):
        raise Refused(f"{host} is not among HEALTHBOARD_OUTGOING_HOSTS")
    if _literal(host) and (why := why_not(ipaddress.ip_address(host))):
        raise Refused(f"{host} is {why}")
    path = (split.path or "/") + (f"?{split.query}" if split.query else "")
    return split.scheme, host, port or (443 if split.scheme == "https" else 80), path


def _listed(host: str) -> bool:
    """Whether it is a host of `HEALTHBOARD_OUTGOING_HOSTS`, or within a domain of it (`.example.com`); without it any is."""
    allowed, name = config.listed("HEALTHBOARD_OUTGOING_HOSTS"), host.lower()
    return not allowed or any(name == one.lower() or (one[0] == "." and name.endswith(one.lower())) for one in allowed)


def why_not(address: Address) -> str:
    """Why nothing is sent to an address, in words; empty where it may be. IPv4 within IPv6 counts as what it is."""
    inner = getattr(address, "ipv4_mapped", None) or address
    if settings.SANDBOX:
        return "" if inner.is_loopback else "not a loopback address"
    if any(address in net for net in DISGUISED if net.version == address.version):
        return "an address that hides another one"
    if inner.is_loopback or inner.is_private or inner.is_link_local or inner.is_reserved or not inner.is_global:
        return "an internal address"
    return "a multicast address" if inner.is_multicast else ""


def _resolve(host: str, port: int) -> list[Address]:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = [ipaddress.ip_address(row[4][0].partition("%")[0]) for row in rows]
    except (OSError, ValueError, UnicodeError) as error:
        raise NotDelivered(f"the name {host} cannot be looked up") from error
    if not found:
        raise NotDelivered(f"the name {host} has no address")
    return found


def _literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        return False


class _Pinned(http.client.HTTPConnection):
    """A connection to the checked address, under the host's name."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.host, place.port, timeout=STEP_S)
        self.default_port = 443 if place.https else 80  # so that the Host header names another one only
        self.place, self.was_cut = place, False

    def connect(self) -> None:
        self.sock = socket.create_connection((self.place.address, self.port), self.timeout)
        if self.place.https:
            # the handshake on its own, so that it can be cut as well
            self.sock = context().wrap_socket(self.sock, server_hostname=self.place.host, do_handshake_on_connect=False)
            self.sock.do_handshake()

    def cut(self) -> None:
        """End it from outside, whatever it waits for: one that sends a byte now and then must not hold a worker."""
        self.was_cut = True
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


def context() -> ssl.SSLContext:
    """Certificates are verified by the system's authorities."""
    return ssl.create_default_context()

"""Where the hosts lead that the environment names: the provider of log-ins, the mail server, STS.

They may well be inside, so that not everything inside is refused as it is for what a person types in
(`notices.outgoing`); but none of them is the metadata service, a multicast address or one that hides another. A name is
looked up once, every address of it is checked, and the connection goes to a checked one. No Django here.
"""

from __future__ import annotations

import ipaddress
import socket

from healthboard import config

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
#: ranges that lead elsewhere than they say (NAT64, 6to4, Teredo), so that what is behind them cannot be checked
DISGUISED = [ipaddress.ip_network(n) for n in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")]
#: of EC2 on IPv6; that of IPv4 is link-local
METADATA = ipaddress.ip_network("fd00:ec2::/32")


class Refused(OSError):
    """Nothing was sent: the host is none that may be reached. A client takes it as a connection that failed."""


def connect(host: str, port: int, timeout: float | None) -> socket.socket:
    """A connection to a checked address of that host. Raises Refused, or OSError for what stood in the way."""
    last: OSError | None = None
    for address in look_up(host, port):
        try:
            return socket.create_connection((address, port), timeout)
        except OSError as error:
            last = error
    raise last or OSError(f"the name {host} has no address")


def look_up(host: str, port: int) -> list[str]:
    """The addresses of a host, each of them checked; one bad address spoils the name."""
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found = list(dict.fromkeys(row[4][0].partition("%")[0] for row in rows))
    for address in found:
        if why := why_not(ipaddress.ip_address(address)):
            raise Refused(f"{host} is {why}")
    return found


def why_not(address: Address) -> str:
    """Why a host of the environment is not reached there, in words; empty where it is."""
    inner = getattr(address, "ipv4_mapped", None) or address
    if config.mode() == "sandbox":
        return "" if inner.is_loopback else "not a loopback address"
    if any(address in net for net in DISGUISED if net.version == address.version):
        return "an address that hides another one"
    if inner.is_link_local or (inner.version == 6 and inner in METADATA):
        return "where machines ask for their metadata"
    return "an address of no machine" if inner.is_multicast or inner.is_unspecified or inner.is_reserved else ""

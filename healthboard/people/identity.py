"""Who a machine is, by a GetCallerIdentity that it signed with its EC2 instance identity role and only STS can check.

Of the request that goes to STS nothing comes from the machine but the four values of its signature: host, path, action
and headers are ours. The signature covers our name and our nonce, so that a proof made for another server, or made
before, is refused by STS itself. (HashiCorp Vault's and SPIRE's way; see docs/decisions/0073.)
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from healthboard import aws, config, egress

BODY = b"Action=GetCallerIdentity&Version=2011-06-15"
KIND = "application/x-www-form-urlencoded; charset=utf-8"
SIGNED = "content-type;host;x-amz-date;x-amz-security-token;x-healthboard-nonce;x-healthboard-server"
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[A-Z0-9]{16,128}/(\d{8})/([a-z0-9-]{5,32})/sts/aws4_request, "
    rf"SignedHeaders={SIGNED}, Signature=[0-9a-f]{{64}}",
    re.ASCII,  # a digit of another script is none in a header
)
DATE = re.compile(r"(\d{8})T\d{6}Z", re.ASCII)
TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{16,4096}")
ARN = re.compile(r"<Arn>arn:aws[a-z-]*:sts::(\d{12}):assumed-role/aws:ec2-instance/(i-[0-9a-f]{8,17})</Arn>")
STEP_S, WHOLE_S, MOST = 5.0, 10.0, 64 * 1024
#: so many questions to STS at once; a flood of them must not take all threads of the web server
_room = threading.BoundedSemaphore(4)


class NotProven(Exception):
    """The proof is none; the message says why."""


class Away(Exception):
    """STS could not be asked; trying again later may do."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a machine sends: the values of its Signature Version 4, and what they are said to be for."""

    region: str
    nonce: str
    authorization: str
    date: str
    security_token: str


def server_name() -> str:
    """The name that a proof must be made for; empty where this installation does not know its own."""
    return (urlsplit(config.url()).hostname or "").lower()


def check(proof: Proof) -> None:
    """Everything that can be said without asking STS. Raises NotProven."""
    found = AUTHORIZATION.fullmatch(proof.authorization)
    date = DATE.fullmatch(proof.date)
    if found is None or date is None or not TOKEN.fullmatch(proof.security_token):
        raise NotProven("the signature is not that of a GetCallerIdentity for this server")
    if found.groups() != (date.group(1), proof.region):
        raise NotProven("the signature is of another day or region than it says")
    if proof.region not in aws.regions():
        raise NotProven(f"the region {proof.region} is not one that is looked after here")


def caller(proof: Proof) -> tuple[str, str]:
    """(account, EC2 instance id) that STS names. Raises NotProven or Away."""
    check(proof)
    if not _room.acquire(blocking=False):
        raise Away("too many machines enrol at this moment")
    try:
        status, text = _ask(proof)
    finally:
        _room.release()
    if status >= 500 or status == 429:
        raise Away(f"STS answers {status}")
    if status != 200:
        code = re.search(r"<Code>(\w{1,60})</Code>", text)
        raise NotProven(f"STS refuses the signature ({code.group(1) if code else status})")
    found = ARN.findall(text)
    if len(found) != 1:
        raise NotProven("it is not the identity of an EC2 instance: use the instance identity role's credentials")
    return found[0]


def _ask(proof: Proof) -> tuple[int, str]:
    host = f"sts.{proof.region}.amazonaws.com" + (".cn" if proof.region.startswith("cn-") else "")
    headers = {
        "Host": host,
        "Content-Type": KIND,
        "X-Amz-Date": proof.date,
        "X-Amz-Security-Token": proof.security_token,
        "X-Healthboard-Nonce": proof.nonce,
        "X-Healthboard-Server": server_name(),
        "Authorization": proof.authorization,
        "Connection": "close",
    }
    connection = _connection(host)
    watch = threading.Timer(WHOLE_S, _cut, [connection])
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", "/", BODY, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(MOST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Away(f"STS cannot be reached: {type(error).__name__}") from error
    finally:
        watch.cancel()
        connection.close()


def _connection(host: str) -> http.client.HTTPConnection:
    if config.mode() == "sandbox":
        place = urlsplit(aws.sandbox_endpoint())
        return http.client.HTTPConnection(place.hostname or "", place.port, timeout=STEP_S)
    return _Checked(host, 443, timeout=STEP_S, context=ssl.create_default_context())


class _Checked(http.client.HTTPSConnection):
    """To the address that was looked up once and checked; the certificate is still the name's."""

    def connect(self) -> None:
        plain = egress.connect(self.host, self.port, self.timeout)
        self.sock = self._context.wrap_socket(plain, server_hostname=self.host)


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)

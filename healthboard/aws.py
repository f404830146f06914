"""The one place that makes AWS clients.

Sandbox mode: made-up keys and the sandbox's endpoint; every other host is refused just before a request would leave,
whatever `AWS_*` or `~/.aws` hold. aws mode: the default credential chain, or a role per account. In both, a process
sends its own operations and no others, and the web process none (`healthboard.operations`).
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES
from botocore.model import OperationModel

from healthboard import aws_roles, config, operations
from healthboard.config import BadSetting
from healthboard.operations import Operations

SANDBOX_ACCOUNT = "111122223333"
SANDBOX_REGION = "us-east-1"
SANDBOX_QUEUE = "healthboard-events"
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}(\.fifo)?")
_QUEUE_URL = re.compile(r"https://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(\d{12})/[A-Za-z0-9_-]{1,75}(?:\.fifo)?")
#: attempts of a reading call, the first one included; a changing call is sent once, its effect is read back
READ_ATTEMPTS = 4
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20

_lock = threading.RLock()
#: by when, on the monotonic clock, the changing call that is being made must have left
_until: ContextVar[float | None] = ContextVar("healthboard_send_until", default=None)
monotonic = time.monotonic
_clients: dict[tuple, Any] = {}
_sessions: dict[tuple, botocore.session.Session] = {}


class Entry(NamedTuple):
    """One account that we look after; `role` is the ARN to assume there, or empty."""

    account: str
    role: str


class OutsideSandbox(Exception):
    """Sandbox mode was about to talk to something that is not on loopback. Nothing was sent."""


class NotAllowed(BadSetting):
    """This process may not make such calls. Nothing was sent."""


class NotSent(Exception):
    """A changing call was still here when its time to leave was over. Nothing was sent."""


@contextmanager
def sent_until(moment: float) -> Iterator[None]:
    """Changing calls within leave before `moment` of the monotonic clock, or not at all (`NotSent`)."""
    token = _until.set(moment)
    try:
        yield
    finally:
        _until.reset(token)


def refuse_late(**_: Any) -> None:
    """The last look before a changing call is sent (botocore's `before-send`): its worker may have stood still."""
    until = _until.get()
    if until is not None and monotonic() > until:
        raise NotSent(f"its worker stood still: {monotonic() - until:.0f} s too late to be sent")


def accounts() -> list[Entry]:
    """The entries of `HEALTHBOARD_ACCOUNTS`: `123456789012` or `123456789012=arn:aws:iam::…:role/name`."""
    raw = config.listed("HEALTHBOARD_ACCOUNTS")
    if not raw:
        if config.mode() == "sandbox":
            return [Entry(SANDBOX_ACCOUNT, "")]
        raise BadSetting("HEALTHBOARD_ACCOUNTS is not set: name the accounts to look after, such as 123456789012")
    found = []
    for text in raw:
        account, _, role = text.partition("=")
        if not re.fullmatch(r"\d{12}", account):
            raise BadSetting(f"HEALTHBOARD_ACCOUNTS: {text!r} is not an account of 12 digits")
        if role and not re.fullmatch(r"arn:aws[\w-]*:iam::\d{12}:role/.+", role):
            raise BadSetting(f"HEALTHBOARD_ACCOUNTS: {role!r} is not the ARN of a role")
        found.append(Entry(account, role))
    if len({e.account for e in found}) != len(found):
        raise BadSetting("HEALTHBOARD_ACCOUNTS names an account twice")
    return found


def regions() -> list[str]:
    found = config.listed("HEALTHBOARD_REGIONS")
    if not found:
        if config.mode() == "sandbox":
            return [SANDBOX_REGION]
        raise BadSetting("HEALTHBOARD_REGIONS is not set: name the regions to look after, such as eu-west-1")
    for region in found:
        if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", region):
            raise BadSetting(f"HEALTHBOARD_REGIONS: {region!r} is not a region")
    return list(dict.fromkeys(found))


def clusters() -> list[str]:
    """Names of the clusters to look after; empty means all."""
    return config.listed("HEALTHBOARD_CLUSTERS")


def places() -> list[tuple[str, str]]:
    """Each (account id, region) that we look after, in the order of the settings. Raises BadSetting."""
    return [(entry.account, region) for entry in accounts() for region in regions()]


def event_queue(account: str, region: str) -> str:
    """Name or URL of the queue with the events of one place; empty where there is none. Raises BadSetting.

    `HEALTHBOARD_EVENTS_QUEUE` is a name that is the same in every place, or URLs, each of the place that it names.
    """
    given = config.listed("HEALTHBOARD_EVENTS_QUEUE")
    if not given:
        return SANDBOX_QUEUE if config.mode() == "sandbox" else ""
    found = ""
    for text in given:
        url = _QUEUE_URL.fullmatch(text)
        if url is None and not _QUEUE_NAME.fullmatch(text):
            raise BadSetting(f"HEALTHBOARD_EVENTS_QUEUE: {text!r} is neither the name nor the URL of an SQS queue")
        if url is None or url.groups() == (region, account):
            found = found or text
    return found


def client(
    service: str,
    *,
    account: str,
    region: str,
    changing: bool = False,
    part: str = "",
    allowed: Operations | None = None,
) -> Any:
    """A client for one account and region, kept for the life of the process and safe to share between threads.

    `changing`: for calls that change something; they are sent exactly once and never repeated by botocore.
    `part`: whose rights, reader's or actor's, where one worker does all; by itself the reader's for reading.
    `allowed`: other operations than those, for a command that a person runs with rights of their own.
    Raises BadSetting where the settings or credentials do not allow it, NotAllowed where the process may not call AWS.
    """
    process = config.process()
    part = part or ("actor" if changing else "reader")
    if not operations.OF[process] or (allowed is not None and process != "all"):
        raise NotAllowed(f"the {process} process makes no {'such ' if operations.OF[process] else ''}calls to AWS")
    if process == "reader" and changing:
        raise NotAllowed("the reader process changes nothing in AWS")
    part = part if process == "all" else process
    endpoint = sandbox_endpoint() if config.mode() == "sandbox" else None
    key = (os.getpid(), part, endpoint, service, account, region, changing, allowed is not None)
    with _lock:
        made = _clients.get(key)
        if made is None:
            if endpoint:
                made = _sandbox_client(service, account, region, changing, endpoint)
            else:
                made = _aws_client(service, account, region, changing, part if allowed is None else "")
            own = operations.OF[part] if allowed is None else allowed
            made.meta.events.register_first("before-call", _only(part, own))
            if changing:
                made.meta.events.register_last("before-send", refuse_late)
            _clients[key] = made
    return made


def _only(part: str, allowed: Operations) -> Callable[..., None]:
    """Refuses every operation that is not declared, before its request is made (botocore's `before-call`)."""

    def refuse(model: OperationModel, **_: Any) -> None:
        service, name = model.service_model.service_name, model.name
        if name not in allowed.get(service, ()):
            raise NotAllowed(f"{service}:{name} is not among the operations of the {part}")

    return refuse


# --- sandbox mode


def sandbox_endpoint() -> str:
    """Where the sandbox listens; refused unless it is a loopback address."""
    try:
        url = (config.run_dir() / "sandbox.url").read_text().strip()
    except OSError:
        raise BadSetting(f"the sandbox is not running: {config.run_dir() / 'sandbox.url'} does not exist") from None
    if urlsplit(url).scheme != "http" or not is_loopback(url):
        raise BadSetting(f"the sandbox's endpoint {url!r} is not a loopback address")
    return url


def is_loopback(url: str) -> bool:
    """True only for a literal loopback address: a name could be made to point anywhere."""
    try:
        return ipaddress.ip_address(urlsplit(url).hostname or "").is_loopback
    except ValueError:
        return False


def refuse_outside(request: Any, **_: Any) -> None:
    """The last look at a request before it is sent (botocore's `before-send`)."""
    if not is_loopback(request.url):
        raise OutsideSandbox(f"sandbox mode refuses to talk to {urlsplit(request.url).hostname}")


def _blind_session() -> botocore.session.Session:
    """A session that reads no environment variable, no profile and no file of the user."""
    bare = {name: (None, None, v[2], v[3]) for name, v in BOTOCORE_DEFAUT_SESSION_VARIABLES.items()}
    for name in ("config_file", "credentials_file"):
        bare[name] = (None, None, os.devnull, None)
    return botocore.session.Session(session_vars=bare)


def _sandbox_client(service: str, account: str, region: str, changing: bool, endpoint: str) -> Any:
    key = (os.getpid(), "sandbox")
    session = _sessions.get(key) or _sessions.setdefault(key, _blind_session())
    made = boto3.Session(botocore_session=session, region_name=region).client(
        service,
        aws_access_key_id=f"ASANDBOX{account}",
        aws_secret_access_key="made-up",
        endpoint_url=endpoint,
        config=_config(changing).merge(
            Config(
                proxies={}, ignore_configured_endpoint_urls=True, use_fips_endpoint=False, use_dualstack_endpoint=False
            )
        ),
    )
    made.meta.events.register_first("before-send", refuse_outside)
    return made


# --- aws mode


def _config(changing: bool) -> Config:
    return Config(
        retries={"mode": "standard", "total_max_attempts": 1 if changing else READ_ATTEMPTS},
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=10,
        user_agent_extra="healthboard/0.1.0",
        tcp_keepalive=True,
    )


def _aws_client(service: str, account: str, region: str, changing: bool, role: str) -> Any:
    entry = next((e for e in accounts() if e.account == account), None)
    if entry is None:
        raise BadSetting(f"account {account} is not in HEALTHBOARD_ACCOUNTS")
    session = aws_roles.session(account, aws_roles.arn(role, account) or entry.role, region, _config(False), role)
    return boto3.Session(botocore_session=session, region_name=region).client(service, config=_config(changing))

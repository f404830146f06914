"""The broker: how it is reached (TLS, by whose certificate), what each process may do there, whether it loses messages.

No Django here: the supervisor and `healthboard.processes` ask it before anything else runs.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from healthboard import config
from healthboard.config import BadSetting

DEFAULT = "redis://127.0.0.1:6379/0"
#: who has a user of their own
USERS = ("web", "beat", "reader", "actor", "sender")
#: what every connection begins with, and what a transaction is made of
_BASE = "+auth +hello +ping +select +client|setinfo +client|setname +multi +exec +discard +watch +unwatch"


def url() -> str:
    """`REDIS_URL`. In aws mode TLS, but for this host itself; nothing in it switches the check of certificates off."""
    value = config.read("REDIS_URL", DEFAULT)
    parts = urlsplit(value)
    if any(name.startswith("ssl_") for name in parse_qs(parts.query, keep_blank_values=True)):
        raise BadSetting(
            "REDIS_URL must say nothing of ssl: certificates are always checked; name yours in HEALTHBOARD_REDIS_CA"
        )
    if config.mode() == "aws" and parts.scheme == "redis" and not config.loopback(parts.hostname or ""):
        raise BadSetting(
            "REDIS_URL must begin with rediss:// (TLS), unless the broker is at a loopback address such as 127.0.0.1"
        )
    return value


def tls(given: str = "") -> dict[str, Any]:
    """How certificates are checked, for redis-py and kombu alike; empty where the URL is without TLS. Raises BadSetting."""
    if urlsplit(given or url()).scheme != "rediss":
        return {}
    checked: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    if authority := config.read("HEALTHBOARD_REDIS_CA"):
        if not Path(authority).is_file():
            raise BadSetting(f"HEALTHBOARD_REDIS_CA={authority} is no file: name the authority's certificates (PEM)")
        checked["ssl_ca_certs"] = authority
    return checked


def prefix() -> str:
    return config.read("HEALTHBOARD_REDIS_PREFIX", "healthboard:")


def unacked(process: str) -> dict[str, str]:
    """kombu's names of the keys that hold what workers have taken: each process its own, so that none reads another's."""
    if process not in USERS:
        return {}
    return {f"{name}_key": f"{name}.{process}" for name in ("unacked", "unacked_index", "unacked_mutex")}


def connect(timeout_s: float) -> Any:
    """A client of its own. Raises BadSetting; ValueError for what is no such URL."""
    import redis

    given = url()
    return redis.Redis.from_url(given, socket_connect_timeout=timeout_s, socket_timeout=timeout_s, **tls(given))


def trouble(timeout_s: float = 3.0, *, silent: bool = False) -> str:
    """Why messages could not be relied on, in one line; empty where they can. Raises BadSetting.

    `silent`: a broker that does not answer is no trouble, since whoever asks waits for it anyway.
    """
    import redis

    try:
        with connect(timeout_s) as broker:
            broker.ping()
            try:
                policy = broker.info("memory").get("maxmemory_policy", "")
            except redis.exceptions.NoPermissionError:
                return ""  # its own operators keep it; `+info` lets us look
    except (redis.RedisError, OSError, ValueError) as error:  # ValueError: not a URL of that kind
        said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        return (
            ""
            if silent
            else f"REDIS_URL does not answer ({said}): start that server, or unset it for the embedded one."
        )
    if policy and policy != "noeviction":
        return f"REDIS_URL: its maxmemory-policy is {policy}, which drops messages: set it to noeviction."
    return ""


# --- users


def rules(process: str, password: str, old: str = "") -> str:
    """One line of an ACL file (Valkey, or Redis 7 and later): the smallest rights that kombu works with.

    `password` is kept as its SHA-256; `old` is one that still counts, as it was kept. Everybody may push wake-ups and
    count them; a worker takes from its own queues.
    """
    from healthboard.celery import QUEUES, TAKES

    at = prefix()
    digest = hashlib.sha256(password.encode()).hexdigest()
    every = " ".join(f"%W~{at}{queue}*" for queue in (*QUEUES, "local-"))
    also = f" #{old}" if old and old != digest else ""
    said = [f"user {process} reset on #{digest}{also} -@all {_BASE}"]
    said.append(f"+lpush +llen {every}")
    said.append(f"(+sadd %W~{at}_kombu.binding*)")
    if process == "web":
        said.append(f"(+hlen %R~{at}unacked*)")  # how many are taken; not what is in them
        return " ".join(said)
    said[0] += " +info"  # for the eviction policy
    taken = (*TAKES[process], *(("local-",) if process == "reader" else ())) if process in TAKES else ()
    if taken:
        own = " ".join(f"~{at}{queue}*" for queue in taken)
        said.append(f"(+brpop +rpop +rpush +lpush +llen {own})")
        said.append(
            "(+hset +hget +hdel +hlen +watch +zadd +zrem +zrange +zrevrangebyscore "
            f"~{at}unacked.{process} ~{at}unacked_index.{process})"
        )
        said.append(f"(+set +get +del +evalsha +script|load ~{at}unacked_mutex.{process})")
    return " ".join(said)


def acl(passwords: dict[str, str], old: Mapping[str, str] = MappingProxyType({})) -> str:
    """An ACL file with a user for each process, and nobody without a password; `old`: what still counts, see `rules`."""
    lines = ["user default reset off", *(rules(one, passwords[one], old.get(one, "")) for one in USERS)]
    return "\n".join(lines) + "\n"


def newest(text: str) -> dict[str, str]:
    """Of an ACL file as it is made here: process -> its newest password, as it is kept."""
    found = re.findall(r"^user (\w+) reset on #([0-9a-f]{64})", text, re.MULTILINE)
    return {process: digest for process, digest in found if process in USERS}

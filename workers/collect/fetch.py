"""Many small HTTP answers at once, from machines that are not trusted: asyncio streams, and a limit on everything.

One GET per machine, to a literal address; no redirect is followed, no proxy asked, nothing decompressed. Every way of
not getting a whole answer is a `Failure` with a reason that does not change from round to round.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
K = TypeVar("K")
T = TypeVar("T")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})(?:[ \t]*;[^\r\n]*)?\r\n")


@dataclass(frozen=True, slots=True)
class Target:
    """`host` is a literal IP address."""

    host: str
    port: int
    path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for one machine and for all of them, machines at once, bytes of headers and of a body."""

    node_s: float = 5.0
    overall_s: float = 25.0
    at_once: int = 100
    headers: int = 16 * 1024
    body: int = 2 * 1024 * 1024
    kinds: tuple[str, ...] = ("text/plain", "application/openmetrics-text")


@dataclass(frozen=True, slots=True)
class Failure:
    """`why`: words for a person. `tried` is False where the round ended before this machine's turn."""

    why: str
    tried: bool = True


class Refused(Exception):
    """The answer is not one that is read further."""


def gather(
    targets: Mapping[K, Target],
    read: Callable[[bytes], T],
    *,
    limits: Limits | None = None,
    tick: Callable[[], None] = lambda: None,
) -> dict[K, T | Failure]:
    """What `read` makes of each machine's body, or why there is nothing; every key of `targets` has one.

    `read` runs in the loop's thread, must not touch the database, and says Refused or ValueError to what it does not
    take. The loop has a thread of its own, since the caller's may hold one already; `tick` is called about every second.
    """
    limits = limits or Limits()
    work: _Work[K, T] = _Work(targets, read, limits)
    thread = threading.Thread(target=work.run, name="fetch", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(1.0)
        tick()
    if work.broken is not None:
        raise work.broken
    late = Failure("the round ended before its turn", tried=False)
    return {key: work.found.get(key, late) for key in targets}


class _Work(Generic[K, T]):
    def __init__(self, targets: Mapping[K, Target], read: Callable[[bytes], T], limits: Limits) -> None:
        self.queue, self.read, self.limits = iter(targets.items()), read, limits
        self.found: dict[K, T | Failure] = {}
        self.broken: BaseException | None = None

    def run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._all())
        except BaseException as error:  # carried to the caller's thread
            self.broken = error

    async def _all(self) -> None:
        try:
            async with asyncio.timeout(self.limits.overall_s):
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.limits.at_once):
                        group.create_task(self._one_after_another())
        except TimeoutError:
            pass  # what was not reached is told as such

    async def _one_after_another(self) -> None:
        for key, target in self.queue:
            self.found[key] = await self._one(target)

    async def _one(self, target: Target) -> T | Failure:
        try:
            async with asyncio.timeout(self.limits.node_s):
                return self.read(await _get(target, self.limits))
        except TimeoutError:
            return Failure(f"no whole answer within {self.limits.node_s:g} s")
        except (Refused, ValueError) as refused:
            return Failure(str(refused)[:200])
        except asyncio.IncompleteReadError:
            return Failure("it closed the connection before the answer was whole")
        except asyncio.LimitOverrunError:
            return Failure(f"its headers are longer than {self.limits.headers} bytes")
        except OSError as error:
            return Failure(os.strerror(error.errno) if error.errno else type(error).__name__)
        except Exception:  # one machine's nonsense must not cost the others their reading
            log.exception("%s: its answer cannot be read", target.host)
            return Failure("its answer cannot be read")


async def _get(target: Target, limits: Limits) -> bytes:
    ipaddress.ip_address(target.host)  # a name would have to be looked up, and could point anywhere
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=limits.headers)
    try:
        host = f"[{target.host}]" if ":" in target.host else target.host
        writer.write(
            f"GET {target.path} HTTP/1.1\r\nHost: {host}:{target.port}\r\nAccept: text/plain;version=0.0.4\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: healthboard\r\nConnection: close\r\n\r\n".encode()
        )
        status, headers = _head(await reader.readuntil(b"\r\n\r\n"))
        return await _body(reader, status, headers, limits)
    finally:
        writer.transport.abort()  # whatever it still wants to say


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *rows = head[:-4].split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if not status:
        raise Refused("it does not speak HTTP")
    headers: dict[str, str] = {}
    for row in rows:
        match = _HEADER.fullmatch(row)
        if not match:
            raise Refused("its headers are malformed")
        name = match[1].decode().lower()
        if name in headers and name in ("content-length", "transfer-encoding", "content-type", "content-encoding"):
            raise Refused(f"it gives {name} twice")
        headers[name] = match[2].decode("latin-1")
    return int(status[1]), headers


async def _body(reader: asyncio.StreamReader, status: int, headers: dict[str, str], limits: Limits) -> bytes:
    if status != 200:
        raise Refused(f"it answers {status}")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused("its answer is compressed, which nobody asked for")
    if headers.get("content-type", "").partition(";")[0].strip().lower() not in limits.kinds:
        raise Refused("its answer is not an exporter's text")
    how, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length", "")
    if how == "chunked" and not length:
        return await _chunks(reader, limits.body)
    if how or not (length.isascii() and length.isdigit() and len(length) < 12):
        raise Refused("it does not say how long its answer is")
    if int(length) > limits.body:
        raise _too_long(limits.body)
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        match = _CHUNK.fullmatch(await reader.readuntil(b"\r\n"))
        if not match:
            raise Refused("its answer is malformed")
        length = int(match[1], 16)
        if not length:
            return b"".join(parts)
        size += length
        if size > most:
            raise _too_long(most)
        parts.append(await reader.readexactly(length))
        if await reader.readexactly(2) != b"\r\n":
            raise Refused("its answer is malformed")


def _too_long(most: int) -> Refused:
    return Refused(f"its answer is longer than {most >> 20} MiB" if most >= 1 << 20 else "its answer is too long")

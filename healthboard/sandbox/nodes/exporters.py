"""The simulated nodes' dcgm-exporters: each answers at its own loopback address, on the port of the sandbox.

The node 10.1.2.3 listens on 127.1.2.3, as long as its exporter runs. One event loop in a thread of its own serves all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from functools import partial

from healthboard.sandbox.entities import Instance
from healthboard.sandbox.health import kernel_runs
from healthboard.sandbox.nodes import exporter_text
from healthboard.sandbox.world import Sandbox, World

log = logging.getLogger("healthboard.sandbox.exporters")
LOOK_S = 0.5
STARTS_S = 60
REQUEST_LIMIT, REQUEST_S = 16 * 1024, 10.0


def address(private_ip: str) -> str:
    return "127." + private_ip.partition(".")[2]


class Exporters:
    def __init__(self, sandbox: Sandbox, port: int) -> None:
        self.sandbox, self.port = sandbox, port
        self.servers: dict[str, asyncio.Server] = {}
        self.refused: set[str] = set()
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Returns once those that run now can be asked."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self.ready.wait(5)

    def look(self) -> None:
        """See at once which run, instead of at the next look."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._look(), self._loop).result(5)

    def stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(3)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        while not self._over.is_set():
            try:
                await self._look()
            except Exception:
                log.exception("the exporters cannot be looked after")
            self.ready.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LOOK_S)
        for server in self.servers.values():
            server.close()

    async def _look(self) -> None:
        """Listen for every exporter that runs, and for no other."""
        with self.sandbox.lock:
            wanted = {address(i.private_ip): (w, i.id) for w in self.sandbox.worlds.values() for i in _running(w)}
        for gone in self.servers.keys() - wanted.keys():
            self.servers.pop(gone).close()
        for host in wanted.keys() - self.servers.keys() - self.refused:
            await self._listen(host, *wanted[host])

    async def _listen(self, host: str, world: World, instance: str) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, self.port))
        except OSError as error:  # another program has it, or this system has no such loopback addresses
            listener.close()
            self.refused.add(host)
            log.warning("no exporter at %s: %s", host, error.strerror)
            return
        answer = partial(self._answer, world, instance)
        self.servers[host] = await asyncio.start_server(answer, sock=listener, limit=REQUEST_LIMIT)

    async def _answer(
        self, world: World, instance: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                if not request.startswith(b"GET /metrics "):
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    await writer.drain()
                    return
                with self.sandbox.lock:
                    found = world.instances.get(instance)
                    body = exporter_text.text(world, found) if found else ""
                if body is None:
                    await reader.read()  # it hangs, until its caller goes
                    return
                writer.write(_http(body.encode()))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def _running(world: World) -> list[Instance]:
    now = world.now()
    found = []
    for instance in world.instances.values():
        if not kernel_runs(instance, now) or now < instance.booted_at + STARTS_S / world.config.speed:
            continue
        container = world.container_of.get(instance.id)
        if exporter_text.serving(instance, draining=container is not None and container.status == "DRAINING"):
            found.append(instance)
    return found


def _http(body: bytes) -> bytes:
    """In chunks, as Go's server sends what it does not know the length of."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    parts = [body[start : start + 4096] for start in range(0, len(body), 4096)]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

"""Servers on loopback addresses of their own that answer as they are told to, however bad that is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def http(body: bytes, *, kind: str = TEXT, status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


class Answers:
    """`say[address]` is what the server at it sends: bytes, or a coroutine function that takes the writer."""

    def __init__(self) -> None:
        self.say: dict[str, bytes | Callable] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def at(self, address: str, answer: bytes | Callable) -> str:
        """Listen at this address, or change what is said there."""
        if address not in self.say:
            asyncio.run_coroutine_threadsafe(self._listen(address), self._loop).result(5)
        self.say[address] = answer
        return address

    async def _listen(self, address: str) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, self.port))
        self.port = listener.getsockname()[1]
        await asyncio.start_server(lambda r, w: self._answer(address, r, w), sock=listener)

    async def _answer(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.asked.append((address, await reader.readuntil(b"\r\n\r\n")))
            answer = self.say[address]
            if callable(answer):
                await answer(writer)
            else:
                writer.write(answer)
            await writer.drain()
        writer.close()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

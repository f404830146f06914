"""The nodes of `make load`, in a process of their own: each a reporter that posts a healthy report every 15 s.

As the reporter does it, each report takes a connection of its own, is given ten seconds, and is sent again as it was after
a pause that doubles; those that came due meanwhile follow it, none is left out. More nodes join a few a second, as a fleet
grows: what a node tells first is stored, which costs far more than what it says again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from multiprocessing.connection import Connection
from typing import Any

INTERVAL_S, ANSWER_S, LONGEST_PAUSE_S = 15.0, 10.0, 300.0
JOIN_PER_S = 4.0


def body(number: int) -> bytes:
    """A report of node `number` with what moves left open: @seq, @at, @up and @c."""
    from tests.api.node_helpers import gpu

    gpus = [
        gpu(n, uuid=f"GPU-{number:08d}-0000-4000-8000-{n:012d}", serial=f"{number}-{n}", temperature_c="@c")
        for n in range(8)
    ]
    value = {
        "schema": 1, "reporter": "1.1.0", "boot_id": f"boot-{number}", "seq": "@seq", "sent_at": "@at", "uptime_s": "@up",
        "driver": "580.95.05", "nvml": {"state": "ok", "code": 0, "detail": ""}, "gpu_count": 8, "gpus": gpus,
        "kernel": [], "kernel_overrun": False, "efa": {"expected": None, "present": 32},
    }  # fmt: skip
    return json.dumps(value, separators=(",", ":")).encode()


def request(port: int, token: str, template: bytes, seq: int, due: float) -> bytes:
    """The report of the moment `due`, of time.monotonic()."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - time.monotonic() + due))
    text = template.replace(b'"@seq"', b"%d" % seq).replace(b"@at", at.encode())
    text = text.replace(b'"@up"', b"%.1f" % (10_000 + due)).replace(b'"@c"', b"%d" % (40 + seq % 9))
    head = (
        f"POST /api/v1/node/reports HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + text


async def post(port: int, message: bytes) -> int:
    """The status of the answer; 0 where none came."""
    writer = None
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(message)
            line = (await reader.read()).split(b"\r\n", 1)[0]
        return int(line.split()[1])
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0
    finally:
        if writer is not None:
            writer.close()


class Nodes:
    """`took`: seconds from when a report was due until it was accepted; `refused`: status -> how often, 0 for no answer."""

    def __init__(self, port: int, tokens: list[str]) -> None:
        self.port, self.tokens, self.wanted = port, tokens, 0
        self.took: list[float] = []
        self.refused: dict[int, int] = {}

    async def node(self, number: int) -> None:
        template, seq, due = body(number), 0, time.monotonic()
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            seq, failures = seq + 1, 0
            report = request(self.port, self.tokens[number], template, seq, due)
            while (status := await post(self.port, report)) != 200:
                self.refused[status] = self.refused.get(status, 0) + 1
                await asyncio.sleep(min(LONGEST_PAUSE_S, 2**failures) * random.uniform(0.5, 1.5))
                failures += 1
            self.took.append(time.monotonic() - due)
            due += INTERVAL_S

    async def serve(self, orders: Connection) -> None:
        """Orders: a number of nodes; "told": what was measured since the last time; "end"."""
        running: list[asyncio.Task[None]] = []
        begun = time.monotonic()
        while True:
            while orders.poll():
                order = orders.recv()
                if order == "end":
                    return
                if order == "told":
                    orders.send((len(running), self.took, self.refused))
                    self.took, self.refused = [], {}
                else:
                    self.wanted, begun = order, time.monotonic() - len(running) / JOIN_PER_S
            while len(running) < min(self.wanted, (time.monotonic() - begun) * JOIN_PER_S):
                running.append(asyncio.create_task(self.node(len(running))))
            await asyncio.sleep(0.05)


def generate(port: int, tokens: list[str], orders: Connection) -> None:
    asyncio.run(Nodes(port, tokens).serve(orders))


def told(orders: Connection) -> tuple[int, list[float], dict[int, int]]:
    """(nodes that have joined, seconds per report, refusals) since the last time. Raises EOFError where the nodes ended."""
    orders.send("told")
    while not orders.poll(1):
        pass
    answer: Any = orders.recv()
    return answer

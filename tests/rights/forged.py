"""Messages that nobody of ours sent: any task, any argument; and bytes that are no message at all. Seeded."""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from healthboard.celery import QUEUES, app

TEXTS = (
    "", "1", "i-0123456789abcdef0", "1 OR 1=1", "'; DROP TABLE repairs_repair; --", "{}", "__import__('os').system('x')",
    "../../etc/passwd", "\x00", "\x1b[2J", "\u202e1", "\ud83d\ude00", "９", "١", "x" * 100_000, "NaN", "true", "null",
)  # fmt: skip
KEYS = ("repair_id", "instance_id", "source_id", "self", "args", "task_id", "allowed", "actor", "choice", "")


def tasks() -> list[str]:
    app.loader.import_default_modules()
    return sorted(name for name in app.tasks if name.startswith("workers."))


def argument(rng: random.Random, ids: Sequence[int], depth: int = 0) -> Any:
    """One argument: an id that exists, one that does not, or something that is no id."""
    draw: list[Callable[[], Any]] = [
        lambda: rng.choice(ids) if ids else 1,
        lambda: rng.choice(ids) if ids else 1,
        lambda: rng.choice([0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 2**70, 10**40]),
        lambda: rng.randrange(10_000_000),
        lambda: rng.choice([True, False, None, 1.0, 1.5, -0.0, 1e308, float("inf"), float("nan")]),
        lambda: rng.choice(TEXTS),
        lambda: [argument(rng, ids, depth + 1) for _ in range(rng.randrange(4))] if depth < 3 else [],
        lambda: {rng.choice(KEYS): argument(rng, ids, depth + 1) for _ in range(rng.randrange(3))} if depth < 3 else {},
        lambda: {"__type__": "datetime", "__value__": "2026-01-01T00:00:00"},
    ]
    return rng.choice(draw)()


def call(rng: random.Random, names: Sequence[str], ids: Sequence[int]) -> tuple[str, list[Any], dict[str, Any]]:
    """(task, args, kwargs); about half have the shape of a wake-up, so that they come as far as anything can."""
    name = rng.choice(names)
    if rng.random() < 0.5:
        return name, [rng.choice(ids)] if ids and rng.random() < 0.8 else [], {}
    args = [argument(rng, ids) for _ in range(rng.choice([0, 1, 1, 1, 2, 5]))]
    kwargs = {rng.choice(KEYS): argument(rng, ids)} if rng.random() < 0.3 else {}
    return name, args, kwargs


def message(rng: random.Random, names: Sequence[str], ids: Sequence[int]) -> bytes:
    """What is pushed into a queue: a message of kombu's form, one that is spoilt somewhere, or no message."""
    name, args, kwargs = call(
        rng, [*names, "celery.map", "celery.chord_unlock", "os.system", "workers.repair.nope"], ids
    )
    embed: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    if rng.random() < 0.15:
        other = {"task": rng.choice(list(names)), "args": [1], "kwargs": {}, "options": {}, "subtask_type": None}
        embed[rng.choice(list(embed))] = [other]
    body = base64.b64encode(json.dumps([args, kwargs, embed]).encode()).decode()
    number = str(uuid.UUID(int=rng.getrandbits(128)))
    queue = rng.choice(QUEUES)
    told: dict[str, Any] = {
        "body": body, "content-encoding": "utf-8", "content-type": "application/json",
        "headers": {"lang": "py", "task": name, "id": number, "root_id": number, "parent_id": None, "group": None,
                    "argsrepr": "()", "kwargsrepr": "{}", "retries": 0, "timelimit": [None, None], "eta": None, "expires": None},
        "properties": {"correlation_id": number, "reply_to": number, "delivery_mode": 2, "priority": 0,
                       "delivery_info": {"exchange": "", "routing_key": queue}, "body_encoding": "base64",
                       "delivery_tag": number},
    }  # fmt: skip
    if rng.random() < 0.6:
        _spoil(rng, told)
    raw = json.dumps(told).encode()
    if rng.random() < 0.15:
        raw = rng.choice(
            [
                b"",
                b"\xff\xfe",
                raw[: len(raw) // 2],
                b"[" * 100_000,
                b"1",
                b"null",
                b'"x"',
                b"[]",
                b"{}",
                b"x" * 300_000,
            ]
        )
    return raw


def _spoil(rng: random.Random, told: dict[str, Any]) -> None:
    part = rng.choice([told, told["headers"], told["properties"], told["properties"]["delivery_info"]])
    key = rng.choice(list(part))
    if rng.random() < 0.4:
        del part[key]
        return
    part[key] = rng.choice([
        None, "", 7, [], {}, "x" * 10_000, "application/x-python-serialize", "application/x-yaml", "application/data", "zlib",
        "2099-01-01T00:00:00", "2000-01-01T00:00:00", [0.001, 0.001], [1e9, 1e9], -1, 2**70, "\ud800", True,
    ])  # fmt: skip
    if rng.random() < 0.2 and isinstance(told.get("headers"), dict):
        told["headers"]["compression"] = "application/x-gzip"

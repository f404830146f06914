"""How many wake-ups wait in the broker. They are only wake-ups: what is to be done is in the database."""

from __future__ import annotations

import redis
from django.conf import settings

from healthboard import broker
from healthboard.celery import QUEUES

STEP_S = 0.5


def lengths() -> dict[str, int] | None:
    """Messages in each queue, and under ``taken`` those that workers hold; None where the broker does not answer."""
    prefix = broker.prefix()
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=STEP_S, socket_timeout=STEP_S, **broker.tls(settings.REDIS_URL)
        ) as asked_of, asked_of.pipeline(transaction=False) as asked:  # fmt: skip
            for queue in QUEUES:
                asked.llen(f"{prefix}{queue}")
            for process in ("all", *broker.USERS):
                asked.hlen(prefix + broker.unacked(process).get("unacked_key", "unacked"))
            found = asked.execute()
    except (redis.RedisError, OSError, ValueError):
        return None
    waiting, taken = found[: len(QUEUES)], found[len(QUEUES) :]
    return {**dict(zip(QUEUES, waiting, strict=True)), "taken": sum(taken)}

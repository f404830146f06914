"""How many wake-ups wait in the broker. They are only wake-ups: what is to be done is in the database."""

from __future__ import annotations

import redis
from django.conf import settings

from healthboard import config
from healthboard.celery import QUEUES

STEP_S = 0.5


def lengths() -> dict[str, int] | None:
    """Messages in each queue, and under ``taken`` those that a worker holds; None where the broker does not answer."""
    prefix = config.read("HEALTHBOARD_REDIS_PREFIX", "healthboard:")
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL, socket_connect_timeout=STEP_S, socket_timeout=STEP_S
        ) as broker, broker.pipeline(transaction=False) as asked:  # fmt: skip
            for queue in QUEUES:
                asked.llen(f"{prefix}{queue}")
            asked.hlen(f"{prefix}unacked")
            found = asked.execute()
    except (redis.RedisError, OSError, ValueError):
        return None
    return dict(zip((*QUEUES, "taken"), found, strict=True))

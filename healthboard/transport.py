"""kombu's Redis transport, which drops what is no wake-up of ours before anything is made of it.

Whoever holds a password of the broker may push bytes of any kind. As it comes, kombu lets a text that is no JSON, or an
object without its properties, end the worker; an ETA fills its memory, a compressed body may unpack to any size. Nothing
is lost by dropping: the database knows what is to be done.
"""

from __future__ import annotations

import base64
import json
import logging
from datetime import datetime
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

log = logging.getLogger(__name__)
#: characters of a body; ours have about a hundred
LONGEST = 4096
#: seconds after which a task is ended, and before that asked to end; a message may not name others
LIMITS = (240, 200)


def strange(message: Any) -> str:
    """What is wrong with a message, in a word; empty where it looks like one that `wake` or beat sent."""
    if not isinstance(message, dict):
        return "not an object"
    properties, headers, body = message.get("properties"), message.get("headers"), message.get("body")
    if not isinstance(properties, dict) or not isinstance(headers, dict) or not isinstance(body, str):
        return "incomplete"
    if not isinstance(properties.get("delivery_tag"), str) or not isinstance(properties.get("delivery_info"), dict):
        return "without delivery"
    if message.get("content-type") != "application/json" or message.get("content-encoding") != "utf-8":
        return "not JSON"
    if len(body) > LONGEST or properties.get("body_encoding") != "base64":
        return "too long"
    if not all(isinstance(headers.get(name), str) and len(headers[name]) < 200 for name in ("task", "id")):
        return "without task"
    if not headers["task"].startswith("workers."):  # Celery brings tasks of its own, which call others
        return "of no task of ours"
    # not only what is empty: Celery ends the worker over an ETA of ""
    if any(headers.get(name) is not None for name in ("compression", "eta", "group", "chord")):
        return "of a kind that is not used"
    if headers.get("timelimit") not in (None, [None, None], [*LIMITS]) or headers.get("retries") not in (None, 0):
        return "of a kind that is not used"
    if not _moment(headers.get("expires")):  # Celery ends the worker over one that it cannot read
        return "of a kind that is not used"
    return "" if _plain(body) else "not a plain call"


def _moment(value: Any) -> bool:
    """Nothing, or a time with its zone, as beat writes it."""
    try:
        return value is None or datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _plain(body: str) -> bool:
    """Arguments and nothing else: no callbacks, chains or chords, which would have the worker send more."""
    try:
        told = json.loads(base64.b64decode(body, validate=True))
    except (ValueError, RecursionError):
        return False
    match told:
        case [list(), {**named}, {**more}]:
            return not named and not any(more.values())
    return False


class Channel(redis.Channel):
    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (ValueError, RecursionError) as error:  # of JSON, or of text that is not UTF-8
            log.warning("a message that cannot be read was dropped: %s", type(error).__name__)
            raise Empty from None


class Transport(redis.Transport):
    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        if why := strange(message):
            log.warning("a message in %s was dropped: %s", queue, why)
            return
        super()._deliver(message, queue)


def use() -> None:
    """From now on, `redis://` and `rediss://` mean this transport."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"

"""How this process logs: a line per record for people, or a JSON object per record for machines.

Control characters are escaped in both: text from nodes and users cannot forge a second record. What a record is about
(the request, the task, the repair) comes with it, from whoever bound it: see `about`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from structlog import contextvars


@contextmanager
def about(**ids: Any) -> Iterator[None]:
    """Records within carry these ids, such as `repair=12`; those of the caller are back afterwards."""
    with contextvars.bound_contextvars(**{name: value for name, value in ids.items() if value is not None}):
        yield


class Line(logging.Formatter):
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = time.gmtime

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        first, _, rest = text.partition("\n")
        ids = "".join(f" {name}={value}" for name, value in sorted(contextvars.get_contextvars().items()))
        # a traceback of our own code keeps its lines, indented, so that a line start is always ours
        return _escaped(first + ids) + "".join("\n    " + _escaped(line) for line in rest.splitlines())


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def json_lines() -> logging.Formatter:
    """Objects with `timestamp` (ISO 8601, UTC), `level`, `logger`, `event`, the ids, and `exception` where there is one."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            contextvars.merge_contextvars,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )

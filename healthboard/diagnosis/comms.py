"""What an application says when it loses its mates: NCCL, PyTorch, Gloo, MPI and libfabric, in a log or in the reason
for which ECS says that a task stopped.

It is the mark of a victim: nearly always another node broke first, and nothing is wrong with the one that says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from healthboard.diagnosis.parsed import IgnoredCounter, Parsed, at_line, lines_of, parse_time
from healthboard.diagnosis.signals import Event

CODE = "COMMUNICATION_ERROR"
TASK = "ECS Task State Change"
_LOST = re.compile(
    r"ncclRemoteError|ncclSystemError|\bNCCL WARN\b.{0,200}(?:connection|peer|socket|timed? ?out|unreachable|ibv_|status=12)|"
    r"\bNCCL error\b|\bNCCL watchdog\b|Watchdog caught collective operation timeout|collective operation timeout|"
    r"socketStartConnect: Connect to|(?:closed|reset) by (?:remote )?peer|\bMPI_ABORT was invoked|ORTE has lost communication|"
    r"gloo/transport.{0,200}(?:timed? ?out|closed|refused)|(?:libfabric|\bEFA\b).{0,120}(?:unreachable|connection.{0,20}lost)|"
    r"DistBackendError|DistNetworkError|RendezvousConnectionError",
    re.IGNORECASE,
)
#: a line without any of these is no application's log
_LOOKS = re.compile(r"\bNCCL\b|torch\.distributed|ProcessGroup|\bgloo\b|\bMPI_|libfabric", re.IGNORECASE)
#: ended because it was told to: an orderly end says nothing of its mates
_TOLD = ("UserInitiated", "ServiceSchedulerInitiated", "SpotInterruption", "TerminationNotice")


def parse(text: str) -> Parsed:
    """An application's log; `known` is 0 where it is none."""
    ignored, events, known = IgnoredCounter(), [], 0
    for number, line in enumerate(lines_of(text, ignored), 1):
        if not _LOOKS.search(line):
            continue
        known += 1
        if _LOST.search(line):
            at, attrs = at_line(number), {"undated": True}
            events.append(Event(at, CODE, "application", text=line.strip()[:300], attrs=attrs, seq=number))
        else:
            ignored.add("an application's log line that tells of no lost mate", line)
    return Parsed(tuple(events), (), ignored.result(), known)


def read_task(envelope: Any) -> list[Event]:
    """The event of a task that ECS says stopped because it lost its mates; it names its container instance alone."""
    detail = envelope.get("detail") if isinstance(envelope, Mapping) else None
    if not isinstance(detail, Mapping) or envelope.get("detail-type") != TASK or detail.get("lastStatus") != "STOPPED":
        return []
    if detail.get("stopCode") in _TOLD:
        return []
    containers = detail.get("containers")
    rows = [row for row in containers if isinstance(row, Mapping)] if isinstance(containers, list) else []
    words = [detail.get("stoppedReason"), *(row.get("reason") for row in rows)]
    said = next((word[:1000] for word in words if isinstance(word, str) and _LOST.search(word[:1000])), "")
    if not said:
        return []
    at = parse_time(detail.get("stoppedAt")) or parse_time(detail.get("updatedAt")) or parse_time(envelope.get("time"))
    return [Event(at or datetime.fromtimestamp(0, UTC), CODE, "ecs", text=said[:300])]

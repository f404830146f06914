"""The end of the chain, kept outside the database: whoever can rewrite the database cannot rewrite these too.

`audit-heads.log` gets a line an hour, appended and never rewritten; `audit-head.json` is replaced after every round
of sealing, so that a database that was put back is noticed at once. Each line: ``{"at", "position", "row", "hash"}``;
``"instead_of"`` names the head of a chain that a person let go, or that an empty database did not have.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from healthboard import clock, config
from healthboard.audit.chain import End, end
from healthboard.audit.models import Seal

EVERY = timedelta(hours=1)
_HEAD = re.compile("[0-9a-f]{64}|")


def log() -> Path:
    return Path(config.read("HEALTHBOARD_AUDIT_HEADS") or config.home() / "audit-heads.log")


def _last() -> Path:
    return config.home() / "audit-head.json"


def newest() -> tuple[End, datetime, Path] | None:
    """The head that was written last, when, and the file that holds it; None where none can be read."""
    found = [(when, head, path) for path in (log(), _last()) if (read := _read(path)) for head, when in [read]]
    if not found:
        return None
    when, head, path = max(found, key=lambda one: one[0])
    return head, when, path


def _read(path: Path) -> tuple[End, datetime] | None:
    """The last whole line: a line that was cut by a crash is passed over."""
    try:
        with path.open("rb") as lines:
            lines.seek(0, os.SEEK_END)
            lines.seek(max(lines.tell() - 8192, 0))
            tail = lines.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(tail):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            value = json.loads(line)
            when = datetime.fromisoformat(value["at"]).astimezone(UTC)
            if _HEAD.fullmatch(value["hash"]) and 0 <= value["position"] < 2**63:
                return End(value["position"], value["hash"], int(value["row"])), when
    return None


def behind() -> str:
    """Why the database is older than what is known outside it, in words; empty where it is not."""
    known = newest()
    if known is None or not known[0].position:
        return ""
    head, when, path = known
    if Seal.objects.filter(position=head.position, hash=head.hash).exists():
        return ""
    return (
        f"The database does not hold the head of {when:%Y-%m-%d %H:%M:%S} UTC in {path.name} (position "
        f"{head.position}, row {head.row}): it was put back to an earlier time, or rewritten"
    )


def keep() -> datetime | None:
    """After sealing: keep the end of the chain outside. Call only where the database is not behind. Returns when the
    log was last appended to. Raises OSError where a file cannot be written."""
    here, now = end(), clock.now()
    if here is None:
        return None
    latest = _read(_last())
    if latest is None or latest[0] != here:
        _replace(_last(), _line(here, now))
    logged = _read(log())
    if logged is None or now - logged[1] >= EVERY or logged[1] > now:
        _append(log(), _line(here, now))
        return now
    return logged[1]


def begin_again(why: str) -> None:
    """What is in the database counts from now on, and the log says instead of what: a person released it, or the
    database is new and empty."""
    before, now = newest(), clock.now()
    if before is None:
        return
    line = _line(end() or End(0, "", 0), now, instead_of=before[0].hash, why=why)
    _append(log(), line)
    _replace(_last(), line)


def let_go() -> list[str]:
    """When the log began again with another chain, why, and instead of which head; for an auditor to judge."""
    told = []
    with contextlib.suppress(OSError), log().open(errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                value = json.loads(line)
                if isinstance(value, dict) and "instead_of" in value:
                    told.append(f"{value.get('at')} ({value.get('why')}), instead of {value['instead_of']}")
    return told


def _line(head: End, now: datetime, **more: Any) -> str:
    return json.dumps({"at": now.isoformat(), **asdict(head), **more}) + "\n"


def _append(path: Path, line: str) -> None:
    """On a line of its own even after a torn one, and on the disk before it returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        size = os.fstat(handle).st_size
        torn = size and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, ("\n" * bool(torn) + line).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.uname().nodename}.{os.getpid()}")  # a folder of several hosts, perhaps
    with new.open("w") as out:
        out.write(line)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)

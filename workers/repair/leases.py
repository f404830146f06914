"""By which name a worker holds its leases, and what frees those of one that has died."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from healthboard.repairs import lifecycle


def worker_name() -> str:
    return f"{socket.gethostname()[:60]}:{_processes()}:{os.getpid()}"


def _processes() -> str:
    """Whose process ids ours are: two containers, or two machines, may share a host name and see none of each other's.
    This boot of the machine and the PID namespace; empty where the system tells neither."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return f"{boot[:8]}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def free_dead_workers() -> None:
    """A worker that no longer runs need not hold its leases until they run out; of those whose process ids can be told."""
    if not _processes():
        return
    here = worker_name().removesuffix(str(os.getpid()))
    for owner in lifecycle.leases_of(here):
        pid = owner.removeprefix(here)
        if pid.isdigit() and int(pid) != os.getpid() and not os.path.exists(f"/proc/{pid}"):
            lifecycle.free_leases(owner)

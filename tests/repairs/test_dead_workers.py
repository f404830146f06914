"""The lease of a worker that has died is freed at once, and only where it is known to have died."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from healthboard import clock
from healthboard.repairs import lifecycle
from healthboard.repairs.models import Repair
from tests import factories
from workers.repair import leases


@pytest.fixture
def dead() -> int:
    """The process id of one that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def held(owner: str) -> Repair:
    """A repair that a worker of this name has claimed."""
    row = factories.repair(factories.instance(factories.pool("solo", "TEMPLATE")), next_at=factories.ago(1))
    assert lifecycle.claim(row.pk, owner) is not None
    return row


def freed(row: Repair) -> bool:
    leases.free_dead_workers()
    row.refresh_from_db()
    return row.lease_until <= clock.now()


def named(pid: int) -> str:
    """As a worker of our own host and namespace with this process id names itself."""
    name = leases.worker_name()
    assert len(name) <= Repair._meta.get_field("lease_owner").max_length and name.endswith(f":{os.getpid()}")
    return f"{name.rpartition(':')[0]}:{pid}"


def test_of_our_own_processes_the_dead_ones_are_freed(db, dead):
    assert freed(held(named(dead)))
    assert not freed(held(named(os.getppid()))) and not freed(held(leases.worker_name()))


def test_another_containers_or_machines_process_is_not_looked_for_among_ours(db, dead, monkeypatch):
    """They share the host name; the process id is of another namespace, or of another boot."""
    names = []
    for of, name, told in (leases.Path, "read_text", "0" * 36), (leases.os, "stat", SimpleNamespace(st_ino=1)):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(of, name, lambda *_, told=told: told)
            names.append(named(dead))
    others = [held(name) for name in names]
    earlier = held(f"{socket.gethostname()}:{dead}")  # as an earlier release named itself
    assert not any(freed(row) for row in (*others, earlier))


def test_where_the_system_does_not_tell_its_processes_no_lease_is_freed(db, dead, monkeypatch):
    ours = held(named(dead))
    monkeypatch.setattr(leases, "_processes", lambda: "")
    nameless = held(f"{leases.worker_name().rpartition(':')[0]}:{dead}")
    assert not freed(ours) and not freed(nameless)

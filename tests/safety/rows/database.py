"""T5: the database restarts while the worker stands at a fault point, takes no writes, or takes no more connections."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import psycopg
from django.db import connection, connections

from tests.safety import checks
from tests.safety.conductor import STOP, Conductor, seeded
from tests.safety.databases import TRIAL, admin
from tests.safety.flows import Flow

#: seconds of the trial in which the database fails
FAILING_S = 6


def restart(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    """A backend's crash takes all of them along; PostgreSQL recovers from its log, and the worker goes on."""
    [(name, ordinal)] = spec["points"]
    standing: list[Any] = []

    def reached(worker: Any) -> None:
        standing.append(worker)
        _crash()
        worker.go_on()

    conductor.reached.append(reached)
    conductor.worker(name=name, ordinal=ordinal, signal=STOP)
    conductor.finish(flow.within_s)
    return {"broken": checks.after(conductor, flow), "reached": len(standing), "recovery": 0}


def _crash() -> None:
    end = time.monotonic() + 20
    with admin() as server:
        row = server.execute("select pid from pg_stat_activity where datname = %s limit 1", [TRIAL]).fetchone()
        os.kill(row[0], signal.SIGKILL)
        with contextlib.suppress(psycopg.OperationalError):  # until then PostgreSQL may take connections that it ends
            while time.monotonic() < end:
                server.execute("select 1")
    connection.close()
    while time.monotonic() < end:
        try:
            connection.ensure_connection()
            return
        except Exception:
            connection.close()
            time.sleep(0.05)
    raise TimeoutError("PostgreSQL did not come back")


def readonly(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    def begin() -> Any:
        with admin() as server:
            server.execute(f'alter database "{TRIAL}" set default_transaction_read_only = on')
        _disconnect()

    def end(_: Any) -> None:
        with admin() as server:
            server.execute(f'alter database "{TRIAL}" reset default_transaction_read_only')
        _disconnect()

    return _failing(conductor, flow, spec, begin, end)


def exhausted(conductor: Conductor, flow: Flow, spec: dict[str, Any]) -> dict[str, Any]:
    def begin() -> list[Any]:
        _disconnect()
        taken = []
        try:
            while True:
                taken.append(admin())
        except psycopg.OperationalError:
            return taken

    def end(taken: list[Any]) -> None:
        for one in taken:
            one.close()

    return _failing(conductor, flow, spec, begin, end)


def _failing(conductor: Conductor, flow: Flow, spec: dict[str, Any], begin: Any, end: Any) -> dict[str, Any]:
    """Nothing may be changed in AWS while no intent can be written down."""
    conductor.worker()
    conductor.steps(seeded(spec["row"], spec["flow"], spec["seed"]).randrange(4, 34))
    reached = 0 if conductor.over() else 1
    calls = len(checks.log(conductor))
    held = begin()
    try:
        for _ in range(FAILING_S):
            conductor.fleet.advance(1.0, 1.0)
            conductor._set()
            conductor.sweep()
    finally:
        end(held)
    made = [c["operation"] for c in checks.log(conductor)[calls:]]
    conductor.finish(flow.within_s)
    broken = [f"changed AWS while nothing could be written down: {made}"] if made else []
    return {"broken": broken + checks.after(conductor, flow), "reached": reached, "recovery": 0}


def _disconnect() -> None:
    """Every session of the trial's database ends, our own included."""
    connections.close_all()
    with admin() as server:
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [TRIAL])

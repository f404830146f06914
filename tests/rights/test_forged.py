"""Forged messages: any task, any argument, any bytes; whoever has a password of the broker can at worst wake somebody."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from django.db import connection

from healthboard import clock, processes, transport
from healthboard.cases.models import Case, Decision
from healthboard.celery import LARGEST, QUEUES, TAKES, app
from healthboard.config import ROOT
from healthboard.fleet.models import Installation, Pulse
from healthboard.policies.defaults import ensure_default
from healthboard.repairs.models import Call, Repair, Switch
from tests.rights import forged
from tests.rights.storm import POOLS, Scene, forge
from tests.rights.tls import Broker

WORKERS = ("reader", "actor", "sender")


def test_five_hundred_forged_calls_move_nothing(db, drives):
    scene = Scene(drives(POOLS))
    assert {row["state"] for row in scene.before["repairs"]} == {"SCHEDULED"} and len(scene.before["cases"]) == 2
    assert forge(scene, 0, 500) == []
    scene.drive.sound()


@pytest.mark.parametrize(
    "args, kwargs",
    [
        (["1"], {}), ([True], {}), ([1.0], {}), ([None], {}), ([0], {}), ([-1], {}), ([LARGEST + 1], {}), ([1, 2], {}),
        ([[1]], {}), ([], {"repair_id": 1}), ([1], {"repair_id": 1}),
    ],
)  # fmt: skip
def test_what_is_no_id_never_reaches_a_task(args, kwargs, monkeypatch):
    task = app.tasks[next(name for name in forged.tasks() if name == "workers.repair.advance")]
    ran = []
    monkeypatch.setattr(task, "run", lambda repair_id: ran.append(repair_id))
    task(*args, **kwargs)
    assert ran == []
    task(7)
    assert ran == [7]


def test_a_task_without_an_id_takes_none():
    assert app.tasks["workers.repair.sweep"](7) is None


def _sent(**more) -> dict:
    """A message as `wake` sends it, with parts put in its place."""
    with app.connection_for_write("memory://") as link:
        app.send_task("workers.repair.advance", args=[17], connection=link, ignore_result=True, retry=False)
        raw = link.channel()._get("repair")
    return {**json.loads(json.dumps(raw)), **more}


def test_our_own_messages_are_let_through():
    """Those of a process that does not know the task, and those of a worker, which also name its limits."""
    for limits in ([None, None], list(transport.LIMITS)):
        sent = _sent()
        assert transport.strange({**sent, "headers": {**sent["headers"], "timelimit": limits}}) == ""


@pytest.mark.parametrize("seed", range(3))
def test_what_is_dropped_before_anything_is_made_of_it(seed):
    rng, names = random.Random(seed), forged.tasks()
    told = [json.loads(raw) for raw in (forged.message(rng, names, [1]) for _ in range(300)) if _is_json(raw)]
    dropped = [one for one in told if transport.strange(one)]
    assert 0.3 < len(dropped) / len(told) < 0.95
    for one in told:
        if not transport.strange(one):
            assert one["headers"]["task"].startswith("workers.") and not one["headers"].get("eta")


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


# --- a real broker behind TLS, and a worker for each of the three, under the shipped users


class Workers:
    def __init__(self, server: Broker, folder: Path) -> None:
        base = os.environ["DATABASE_URL"].rpartition("/")[0]
        self.server, self.folder = server, folder
        self.running: dict[str, subprocess.Popen] = {}
        for name in WORKERS:
            env = {
                **os.environ, **server.env(name), "HEALTHBOARD_HOME": str(folder), "HEALTHBOARD_CONCURRENCY": "1",
                "DATABASE_URL": f"{base}/{connection.settings_dict['NAME']}", "HEALTHBOARD_LOG_LEVEL": "WARNING",
            }  # fmt: skip
            with (folder / f"{name}.log").open("wb") as log:
                self.running[name] = subprocess.Popen(
                    processes.command(name), cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
                )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def push(self, raw: bytes, queue: str) -> None:
        self.server.client("web").lpush(f"healthboard:{queue}", raw)

    def until_empty(self, limit: float = 60) -> None:
        end = time.monotonic() + limit
        while any(self.server.admin.llen(f"healthboard:{queue}") for queue in QUEUES):
            assert time.monotonic() < end, {name: self.log(name)[-2000:] for name in WORKERS}
            time.sleep(0.1)

    def stop(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def told(server: Broker, monkeypatch, *names: str) -> None:
    """Real wake-ups, by the user of the web."""
    from tests.rights.test_broker import push

    for name in names:
        push(server, "web", monkeypatch, name)


@pytest.mark.django_db(transaction=True)
def test_three_workers_under_their_users_do_their_work_and_outlive_forged_bytes(tmp_path, monkeypatch):
    Installation.objects.create(mode="sandbox", created_at=clock.now())
    Switch.objects.create(acting=True, changed_at=clock.now(), changed_by="test")
    ensure_default()
    server = Broker(tmp_path / "broker")
    workers = Workers(server, tmp_path)
    try:
        told(server, monkeypatch, "workers.verify.prove_alive", "workers.repair.sweep", "workers.notify.sweep")
        _beaten(workers, "canary", "repair", "notify")
        rng, names = random.Random("T21 bytes"), forged.tasks()
        # rounds of the collectors would only wait for an AWS that is not there
        names = [name for name in names if not name.startswith("workers.collect.")]
        for _ in range(300):
            workers.push(forged.message(rng, names, [1, 2, 3]), rng.choice(QUEUES))
        workers.until_empty()
        Pulse.objects.all().delete()
        told(server, monkeypatch, "workers.verify.prove_alive", "workers.repair.sweep", "workers.notify.sweep")
        _beaten(workers, "canary", "repair", "notify")
        assert {name: process.poll() for name, process in workers.running.items()} == dict.fromkeys(WORKERS)
        for name in WORKERS:
            assert "Unrecoverable" not in workers.log(name) and "was dropped" in workers.log(name)
        assert not any(model.objects.exists() for model in (Case, Decision, Repair, Call))
        # a task of the actor's in the queue of the sender is unknown there
        assert not [1 for queue in TAKES["actor"] if queue in TAKES["sender"]]
    finally:
        workers.stop()
        server.stop()


def _beaten(workers: Workers, *names: str, limit: float = 60) -> None:
    end = time.monotonic() + limit
    while set(names) - set(Pulse.objects.filter(ok=True).values_list("name", flat=True)):
        assert time.monotonic() < end, {name: workers.log(name)[-2000:] for name in WORKERS}
        time.sleep(0.1)

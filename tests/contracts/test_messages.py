"""Celery: names `workers.<stage>.<verb>`, messages that are JSON with at most one id."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest

from healthboard.celery import APART, QUEUES, STAGES, TICKS, app

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(rf"workers\.({'|'.join(STAGES)})\.[a-z_]+")


@pytest.fixture(scope="module")
def tasks():
    app.loader.import_default_modules()
    return {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}


def test_every_task_is_named_by_stage_and_verb_and_takes_at_most_one_id(tasks):
    assert len(tasks) >= 10
    for name, task in tasks.items():
        assert NAME.fullmatch(name), name
        parameters = list(inspect.signature(task.run).parameters.values())
        assert len(parameters) <= 1, name
        assert all(p.name.endswith("_id") and "int" in str(p.annotation) for p in parameters), name


def test_every_tick_and_every_wake_up_in_the_source_is_a_task(tasks):
    assert {task for task, _ in TICKS.values()} <= set(tasks)
    named = set()
    for folder in ("healthboard", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"(?:wake|send)\(\s*\"(workers\.[a-z_.]+)\"", path.read_text()))
    assert named and named <= set(tasks), named - set(tasks)


def test_nothing_but_wake_starts_work():
    for folder in ("healthboard", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            found = re.findall(r"\.delay\(|apply_async|\.send_task\(|countdown=|eta=", path.read_text())
            assert not found or path.name == "wake.py", path


def test_a_message_is_json_with_the_id_alone(monkeypatch):
    with app.connection_for_write("memory://") as connection:
        app.send_task("workers.repair.advance", args=[17], connection=connection, ignore_result=True, retry=False)
        channel = connection.channel()
        message = channel.basic_get("repair", no_ack=True)
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
    args, kwargs, rest = json.loads(message.body)
    assert (args, kwargs) == ([17], {}) and not any(rest.values())
    assert message.headers["task"] == "workers.repair.advance"
    assert app.conf.accept_content == ["json"] and app.conf.task_serializer == "json"
    assert app.conf.result_backend is None and app.conf.task_ignore_result


def test_each_stage_has_its_queue_and_what_comes_round_one_of_its_own(tasks):
    for name in tasks:
        queue = app.amqp.router.route({}, name)["queue"]
        assert queue.name == APART.get(name, {"queue": name.split(".")[1]})["queue"]
    assert {queue.name for queue in app.conf.task_queues} == set(QUEUES)

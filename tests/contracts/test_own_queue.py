"""What the settings of the optional sources make of beat and of the queues."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from healthboard.celery import APART

PROBE = """
import json
from healthboard.celery import TICKS, app
app.loader.import_default_modules()
ticks = {task for task, _ in TICKS.values()}
queues = {t: app.amqp.router.route({}, t)["queue"].name for t in ticks}
beat = {entry["task"] for entry in app.conf.beat_schedule.values()}
print(json.dumps([sorted(ticks - set(app.tasks)), queues, sorted(ticks ^ beat)]))
"""


def asked(**env: str) -> list:
    run = subprocess.run([sys.executable, "-c", PROBE], env={**os.environ, **env}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_own_gpus_are_read_on_the_hosts_own_queue_and_exporters_by_any_worker():
    unknown, queues, unlike = asked(HEALTHBOARD_LOCAL_GPUS="i-0123456789abcdef0", HEALTHBOARD_EXPORTERS="on")
    assert (unknown, unlike) == ([], [])
    assert queues.pop("workers.collect.read_local_gpus") == "local-i-0123456789abcdef0"
    assert queues["workers.collect.read_exporters"] == "collect"
    assert [queues.pop(task) for task in APART] == [apart["queue"] for apart in APART.values()]
    assert all(queue == task.split(".")[1] for task, queue in queues.items())


def test_both_are_off_unless_set():
    _, queues, _ = asked()
    assert not {"workers.collect.read_local_gpus", "workers.collect.read_exporters"} & set(queues)

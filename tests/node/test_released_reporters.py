"""The reporters of the releases before, as processes, against the server of today."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from healthboard import clock
from healthboard.fleet.models import Gpu, HealthEvent, Instance, NodeRequest
from healthboard.people import tokens
from healthboard.people.actors import system
from tests import factories
from tests.api.node_helpers import post, report
from tests.upgrade.released import releases
from workers.node import healthboard_node as node

RELEASES = releases()


@pytest.fixture
def here():
    instance = factories.instance(gpus_expected=8, node_seen_at=None)
    return instance, tokens.issue_node(instance, actor=system("test"))


def _until(done, process, within=20.0):
    end = time.monotonic() + within
    while not done():
        assert time.monotonic() < end and process.poll() is None, process.stderr.read() if process.poll() else "in vain"
        time.sleep(0.1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.tag)
def test_its_reports_are_taken_and_its_answers_too(live_server, machine, tmp_path, here, release):
    instance, token = here
    path = release.reporter(tmp_path)
    version = re.search(r'(?m)^VERSION = "(.+)"', path.read_text())[1]
    assert version != node.VERSION, "this one is no release before"
    env = os.environ | machine.env | {
        "HEALTHBOARD_URL": live_server.url.replace("localhost", "127.0.0.1"), "HEALTHBOARD_NODE_TOKEN": token,
    }  # fmt: skip
    asked = NodeRequest.objects.create(
        instance=instance, verb="diagnose-1", asked_at=clock.now(), expires_at=clock.now() + timedelta(hours=1),
        asked_by="test",
    )  # fmt: skip
    process = subprocess.Popen([sys.executable, str(path)], env=env, stderr=subprocess.PIPE, text=True)
    try:
        _until(lambda: Instance.objects.get(pk=instance.pk).node_seen_at is not None, process)
        machine.say("NVRM: Xid (PCI:0000:3e:00): 79, pid=4242, name=train, GPU has fallen off the bus.", 7)
        _until(lambda: HealthEvent.objects.filter(instance=instance, code="XID_79").exists(), process)
        _until(lambda: NodeRequest.objects.get(pk=asked.pk).answered_at is not None, process)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    now = Instance.objects.get(pk=instance.pk)
    assert (now.reporter_version, now.driver_version) == (version, "580.95.05")
    assert sorted(Gpu.objects.filter(instance=instance).values_list("uuid", flat=True)) == [
        machine.uuid(i) for i in range(8)
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_a_report_of_another_schema_is_refused_with_what_to_do(client, here, schema):
    _, token = here
    answer = post(client, {**report(), "schema": schema}, token)
    assert answer.status_code == 422
    assert "this server takes reports of schema 1" in answer.json()["detail"]
    assert Instance.objects.get().node_seen_at is None

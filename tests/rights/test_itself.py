"""It finds out what it runs on, by IMDSv2 and by the ECS agent, and leaves that machine and that cluster alone."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from healthboard.cases.judge import untouchable
from healthboard.fleet import itself
from healthboard.fleet.models import Instance, Pulse
from tests.collect.conftest import account, rounds
from workers import pulse

__all__ = ["account"]
NOTHING = (0.0, (), itself.Own(frozenset(), frozenset()))
ID, CLUSTER = "i-0123456789abcdef0", "arn:aws:ecs:us-east-1:111122223333:cluster/gpu"


@pytest.fixture
def host(monkeypatch):
    """A host's metadata: version 2 alone, as it is on a machine that asks for tokens."""
    told = SimpleNamespace(instance=ID, task={"Cluster": CLUSTER}, asked=[])

    class Metadata(BaseHTTPRequestHandler):
        def do_PUT(self):
            self._say("a-token" if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else None)

        def do_GET(self):
            told.asked.append(self.path)
            if self.path == "/v4/x/task":
                self._say(json.dumps(told.task))
            elif (
                self.path == "/latest/meta-data/instance-id"
                and self.headers.get("X-aws-ec2-metadata-token") == "a-token"
            ):
                self._say(told.instance)
            else:
                self._say(None)

        def _say(self, text):
            self.send_response(401 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(itself, "IMDS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(itself, "_next", 0.0)
    monkeypatch.setattr(itself, "_in_vain", 0)
    monkeypatch.setattr(itself, "_known", NOTHING)
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    told.task_url = f"http://127.0.0.1:{server.server_port}/v4/x"
    yield told
    server.shutdown()
    server.server_close()


def test_a_worker_tells_the_machine_that_it_runs_on(db, host):
    pulse.beat("repair")
    assert itself.own().has(ID, None) and not itself.own().has("i-00000000000000001", None)
    pulse.beat("repair")
    assert host.asked == ["/latest/meta-data/instance-id"], "once an hour is enough"


def test_a_worker_that_is_an_ecs_task_tells_its_cluster(db, host, monkeypatch):
    monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", host.task_url)
    host.instance = ""
    itself.remember()
    assert Pulse.objects.get(name__startswith=itself.NAME).detail == {"instance": "", "cluster": CLUSTER}


@pytest.mark.parametrize("instance", ["", "i-1; rm -rf /", "<html>", "i-" + "0" * 40])
def test_what_is_no_instance_id_is_not_believed(db, host, instance):
    host.instance = instance
    itself.remember()
    assert not Pulse.objects.filter(name__startswith=itself.NAME).exists()


def test_metadata_elsewhere_than_on_this_host_is_not_asked(db, host, monkeypatch):
    monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", "http://192.0.2.1/v4/x")
    assert itself._cluster() == ""
    monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", "file:///etc")
    assert itself._cluster() == ""


def test_a_host_without_metadata_is_no_trouble(db, host, monkeypatch):
    monkeypatch.setattr(itself, "IMDS", "http://127.0.0.1:1")
    itself.remember()
    assert not Pulse.objects.exists()


def test_a_host_that_does_not_answer_at_once_is_asked_again_within_minutes(db, host, monkeypatch):
    """As a machine starts, its metadata may come later than a worker: for an hour nothing would guard it."""
    now = [1000.0]
    monkeypatch.setattr(itself.time, "monotonic", lambda: now[0])
    host.instance, here = "", host.instance
    pulse.beat("repair")
    now[0], host.instance = now[0] + 61, here
    pulse.beat("repair")
    assert itself.own().has(ID, None)
    host.instance = ""
    for _ in range(4 * 60):  # and one that is no machine of AWS's is not asked for ever
        now[0] += 60.5
        itself.remember()
    assert len(host.asked) <= 2 + itself.TIMES + 4 and itself.own().has(ID, None)


def test_the_sandbox_asks_nobody(db, host, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_MODE", "sandbox")
    itself.remember()
    assert host.asked == [] and not Pulse.objects.exists()


@pytest.mark.parametrize("by", ["setting", "arn", "worker"])
def test_the_cluster_that_it_runs_in_is_left_alone_as_a_whole(sandbox, account, monkeypatch, host, by):
    if by == "worker":
        monkeypatch.setenv("ECS_CONTAINER_METADATA_URI_V4", host.task_url)
        itself.remember()
    monkeypatch.setenv("HEALTHBOARD_MODE", "sandbox")
    rounds(account, count=1)
    monkeypatch.setattr(itself, "_known", NOTHING)  # the cluster's row was not there yet
    if by != "worker":
        monkeypatch.setenv("HEALTHBOARD_SELF_CLUSTER", "gpu" if by == "setting" else CLUSTER)
    rounds(account, count=1)
    members = Instance.objects.filter(cluster__name="gpu")
    assert members.count() > 5 and not members.filter(is_self=False).exists()
    assert not Instance.objects.filter(is_self=True).exclude(cluster__name="gpu").exists()
    assert {untouchable(one) for one in members} == {"healthboard itself runs on it"}
    monkeypatch.delenv("HEALTHBOARD_SELF_CLUSTER", raising=False)
    Pulse.objects.filter(name__startswith=itself.NAME).delete()
    monkeypatch.setattr(itself, "_known", NOTHING)
    rounds(account, count=1)
    assert not Instance.objects.filter(is_self=True).exists(), "it moved elsewhere"

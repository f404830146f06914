"""What the system page knows of the broker, of what is told, of versions; and a pause that is set and ended there."""

from __future__ import annotations

import subprocess
import time
from datetime import timedelta

import pytest
import redis
from prometheus_client import generate_latest

from healthboard import clock, queues, valkey, versions
from healthboard.api import metrics
from healthboard.fleet import itself
from healthboard.fleet.models import Cluster, Pulse
from healthboard.notices import outbox
from healthboard.notices.models import Delivery, Notice, Target
from healthboard.repairs.models import Pause
from tests import factories as make
from tests.cases import scene
from workers.notify import watch


@pytest.fixture
def broker(tmp_path, settings):
    command, url = valkey.prepare(tmp_path)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        if valkey.answers(url):
            break
        time.sleep(0.02)
    settings.REDIS_URL = url
    yield redis.Redis.from_url(url)
    process.terminate()
    process.wait(10)


def test_queue_lengths_are_the_brokers(home, log_in, broker):
    broker.lpush("healthboard:repair", "a", "b", "c")
    broker.hset("healthboard:unacked", "x", "y")
    assert {k: v for k, v in queues.lengths().items() if v} == {"repair": 3, "taken": 1}
    text = log_in("viewer").get("/system/").content.decode()
    assert '<th scope="row">repair</th><td class="num">3</td>' in text


def test_a_broker_that_is_away_is_said_and_holds_the_page_up_for_a_moment_only(home, log_in):
    began = time.monotonic()
    assert queues.lengths() is None
    assert time.monotonic() - began < 2
    assert "does not answer. Nothing is lost" in log_in("viewer").get("/system/").content.decode()


def test_versions_are_of_product_catalogue_and_schema(home, log_in, monkeypatch):
    text = log_in("viewer").get("/system/").content.decode()
    assert versions.product() in text and versions.product()[0].isdigit()
    assert versions.schema().endswith(" migrations") and versions.schema() in text
    disk = versions._on_disk()
    monkeypatch.setattr(versions, "_on_disk", lambda: disk | {("cases", "9999_new")})
    assert "1 not applied" in versions.schema()
    monkeypatch.setattr(versions, "_on_disk", lambda: disk - {("cases", "0001_initial")})
    assert "does not know 1 of them" in versions.schema()


def test_nobody_being_told_is_said_with_what_to_do(home, log_in):
    assert "Nobody is told outside of these pages" in log_in("admin").get("/system/").content.decode()


def test_what_does_not_arrive_is_shown_with_what_to_do(home, log_in):
    target = Target.objects.create(name="on-call", kind="pagerduty", secret="R0UT1NG")
    calm = Target.objects.create(name="a-calm-one", kind="slack", address="http://127.0.0.1:9/TOKENPART")
    for n, (state, error, to) in enumerate(
        [("PENDING", "It answers 503: later.", target), ("FAILED", "It answers 410: gone.", target), ("SENT", "", calm)]
    ):
        outbox.announce(key=f"k{n}", kind="storm", subject="x")
        Delivery.objects.create(
            notice=Notice.objects.get(key=f"k{n}"), target=to, state=state, error=error, attempts=2, next_at=clock.now(),
            ended_at=None if state == "PENDING" else make.ago(60),
        )  # fmt: skip
    client = log_in("viewer")
    text = client.get("/system/").content.decode()
    assert "1 notice given up" in text and "It answers 410: gone." in text
    assert text.index("on-call") < text.index("a-calm-one") and "Arrives" in text
    assert "R0UT1NG" not in text and "TOKENPART" not in text
    numbers = generate_latest(metrics.registry).decode()
    assert 'healthboard_notices{state="given_up",target="on-call"} 1.0' in numbers
    assert 'healthboard_notices{state="troubled",target="on-call"} 1.0' in numbers
    Delivery.objects.filter(state="FAILED").update(ended_at=make.ago(2 * 86400))
    assert "given up" not in client.get("/system/").content.decode()


def test_what_a_host_found_out_of_itself_is_no_process_that_is_late(home, log_in):
    Pulse.objects.create(name="canary", at=make.ago(5000), ok=True)
    Pulse.objects.create(name=f"{itself.NAME}i-0123456789abcdef0", at=make.ago(5000), ok=True)
    text = log_in("viewer").get("/system/").content.decode()
    assert "canary" in text and "late" in text and "i-0123456789abcdef0" not in text


def test_a_receiver_that_no_target_listens_to_is_named(home, log_in):
    scene.policy(notify=["operators", "llm"])
    client = log_in("viewer")
    assert "No target listens" not in client.get("/system/").content.decode()  # there is none at all, which is said
    Target.objects.create(name="ops", kind="slack", address="http://127.0.0.1:9/")
    assert "No target listens to llm" in client.get("/system/").content.decode()
    Target.objects.create(name="llm", kind="slack", address="http://127.0.0.1:9/", receivers=[])
    assert "No target listens" not in client.get("/system/").content.decode()
    Target.objects.filter(name="ops").update(enabled=False)
    assert "No target listens to operators" in client.get("/system/").content.decode()


def test_a_webhook_that_a_policy_calls_and_that_is_off_is_named(home, log_in):
    scene.policy(checkpoint=["train-hook"])
    client = log_in("viewer")
    assert "Policies want train-hook called before a drain" in client.get("/system/").content.decode()
    hook = Target.objects.create(name="train-hook", kind="webhook", address="http://127.0.0.1:9/", secret="s" * 32)
    assert "called before a drain" not in client.get("/system/").content.decode()
    Target.objects.filter(pk=hook.pk).update(enabled=False)
    assert "Policies want train-hook called before a drain" in client.get("/system/").content.decode()


def form(**changed):
    return {"kind": "pool", "scope": "train", "length": "14400", "reason": "roll-out", **changed}


def test_a_pause_is_set_with_reason_and_end_and_ended(home, log_in):
    client = log_in("admin", "ada")
    assert client.post("/system/pauses/", form()).status_code == 303
    row = Pause.objects.get()
    assert (row.scope_kind, row.scope, row.reason, row.set_by) == ("pool", "train", "roll-out", "ada")
    assert timedelta(hours=3.9) < row.until - clock.now() <= timedelta(hours=4)
    assert "roll-out" in client.get("/system/").content.decode()
    assert client.post(f"/system/pauses/{row.pk}/end/").status_code == 303
    row.refresh_from_db()
    assert row.ended_by == "ada"


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"scope": "trian"}, "There is no pool trian"),
        ({"scope": ""}, "Name the pool to pause"),
        ({"kind": "workload"}, "There is no workload train"),
        ({"kind": "instance", "scope": "i-0123"}, "There is no instance i-0123"),
        ({"kind": "nonsense"}, "Choose what to pause"),
        ({"length": "5"}, "Choose how long"),
        ({"length": "²"}, "Choose how long"),
        ({"length": "9" * 400}, "Choose how long"),
        ({"length": "000003600" + "9" * 20}, "Choose how long"),
        ({"reason": ""}, "A pause needs a reason"),
        ({"scope": "train\0"}, "roll-out"),
    ],
)
def test_a_pause_of_nothing_or_without_an_end_is_refused(home, log_in, changed, said):
    answer = log_in("admin").post("/system/pauses/", form(**changed), follow=True)
    assert said in answer.content.decode()
    assert Pause.objects.exists() == ("\0" in changed.get("scope", ""))


def test_whoever_may_not_pause_is_refused_and_a_scoped_admin_pauses_the_own_pool(home, log_in):
    make.pool("infer")
    on = make.instance(home)
    assert log_in("operator").post("/system/pauses/", form()).status_code == 403
    mine = log_in("admin", pool="train")
    assert "Set a pause" in mine.get("/system/").content.decode()
    assert mine.post("/system/pauses/", form(scope="infer")).status_code == 403
    assert mine.post("/system/pauses/", form(kind="fleet", scope="")).status_code == 403
    assert not Pause.objects.exists()
    assert mine.post("/system/pauses/", form()).status_code == 303
    assert mine.post("/system/pauses/", form(kind="instance", scope=on.instance_id)).status_code == 303
    assert log_in("admin").post("/system/pauses/", form(kind="fleet", scope="")).status_code == 303
    assert Pause.objects.count() == 3


def test_the_source_of_a_cluster_that_is_gone_is_blind_nowhere(home, log_in):
    """Nobody asks it any more; once ECS lists the cluster again it counts as any other."""
    cluster = make.cluster("old-one")
    make.source("ecs", age=5000, scope="old-one")
    client = log_in("admin")

    def said() -> list[bool]:
        watch.look()
        shown = [client.get(path).content.decode() for path in ("/system/", "/handover/")]
        told = Notice.objects.filter(kind="blind", subject__contains="old-one").exists()
        return ["old-one" in text for text in (*shown, generate_latest(metrics.registry).decode())] + [told]

    Cluster.objects.filter(pk=cluster.pk).update(gone_at=clock.now())
    assert not any(said())
    Cluster.objects.filter(pk=cluster.pk).update(gone_at=None)
    assert all(said())

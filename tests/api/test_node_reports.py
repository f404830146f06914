"""A node's reports: what is stored, how cheaply, and that a repeat does nothing."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.api import node_intake
from healthboard.api.node_schema import Report
from healthboard.fleet import unchanged
from healthboard.fleet.models import Gpu, Head, HealthEvent, Instance, Interval, NodeRequest, Source
from healthboard.people import credential, tokens
from healthboard.people.actors import system
from tests import factories
from tests.api.node_helpers import UUIDS, gpu, post, report, xid

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in ("_measure", "_whole", "_heard"):
        monkeypatch.setattr(node_intake, name, node_intake.Every(getattr(node_intake, name).seconds))
    node_intake.limiter.buckets.clear()


@pytest.fixture
def node(db):
    return factories.instance(boot_id="", booted_at=None, node_seen_at=None, gpus_expected=8)


@pytest.fixture
def token(node):
    return tokens.issue_node(node, actor=system("test"))


def test_a_report_is_stored(client, node, token):
    answer = post(client, report(), token)
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"accepted": True, "duplicate": False, "requests": [], "interval_s": 5.0}
    node.refresh_from_db()
    assert (node.boot_id, node.driver_version, node.reporter_version) == ("boot-a", "580.95.05", "1.0.0")
    assert node.node_seen_at and node.booted_at and node.evidence_at
    gpus = Gpu.objects.filter(instance=node).order_by("index")
    assert [g.uuid for g in gpus] == UUIDS and gpus[3].pci == "0000:33:00" and gpus[3].status == "ok"
    assert gpus[0].measurements["temperature_c"] == 45 and gpus[0].measured_at
    assert Interval.objects.filter(instance=node, name="GPU_STATUS", value="ok").count() == 8
    source = Source.objects.get(name="node")
    assert source.account == node.account and source.good_rounds == 1


def cheap(queries, more=0):
    """Its credential and what it confirms; on SQLite head, instance and GPUs are one after the other."""
    told = [q["sql"] for q in queries if not q["sql"].startswith(("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT"))]
    assert len(told) == (2 if connection.vendor == "postgresql" else 4) + more, told
    return True


def test_an_unchanged_report_costs_few_queries(client, node, token):
    for seq in (1, 2, 3):
        post(client, report(seq), token)
    hot = report(4, gpus=[gpu(n, temperature_c=47, power_w=300.1, clock_event_reasons=1) for n in range(8)])
    with CaptureQueriesContext(connection) as queries:
        assert post(client, hot, token).json()["duplicate"] is False
    assert cheap(queries)
    assert Head.objects.get(instance=node, channel="node").seq == 4


@pytest.mark.parametrize("way", ["measure", "sync"])
def test_measurements_of_an_unchanged_report_are_written_with_its_head_or_not_at_all(
    client, node, token, monkeypatch, way
):
    for seq in (1, 2):
        post(client, report(seq), token)
    hot = report(3, gpus=[gpu(n, temperature_c=47) for n in range(8)])
    if way == "sync":
        node_intake._whole.last.clear()
    # a statement that fails has ended the whole transaction in PostgreSQL: the test's own
    around = transaction.atomic() if connection.vendor == "postgresql" else nullcontext()
    with monkeypatch.context() as broken, pytest.raises((ZeroDivisionError, IntegrityError)), around:
        broken.setattr(node_intake._measure, "last", {})
        if way == "sync":
            broken.setattr(node_intake.gpus, "sync", lambda *_: 1 / 0)
        for name in ("_TOGETHER", "_GPUS") if way == "measure" else ():
            statement = getattr(unchanged, name)
            assert "measurements = told.value" in statement
            broken.setattr(unchanged, name, statement.replace("measurements = told.value", "measurements = null"))
        post(client, hot, token)
    assert Head.objects.get(instance=node, channel="node").seq == 2, "the same report may come again"
    before, at = Interval.objects.count(), Gpu.objects.get(uuid=UUIDS[0]).measured_at
    node_intake._measure.last.clear()
    if way == "sync":
        node_intake._whole.last.clear()
    with CaptureQueriesContext(connection) as queries:
        assert post(client, hot, token).json()["duplicate"] is False
    assert cheap(queries, {"measure": 0, "sync": 1}[way])  # whose GPUs they are is read too
    assert {g.measurements["temperature_c"] for g in Gpu.objects.filter(instance=node)} == {47}
    assert {g.measured_at > at for g in Gpu.objects.filter(instance=node)} == {True}
    assert Head.objects.get(instance=node, channel="node").seq == 3 and Interval.objects.count() == before


def test_a_report_that_waited_and_says_nothing_new_costs_no_more_and_moves_nothing_back(client, node, token):
    for seq in (1, 2):
        post(client, report(seq), token)
    before = Head.objects.get(instance=node, channel="node")
    with CaptureQueriesContext(connection) as queries:
        assert post(client, report(3, ago=90), token).json()["duplicate"] is False
    assert cheap(queries)
    after = Head.objects.get(instance=node, channel="node")
    assert (after.seq, after.count, after.last_at) == (3, before.count + 1, before.last_at)
    assert post(client, report(3, ago=60), token).json()["duplicate"] is True


def test_measurements_go_to_no_other_machine_and_what_was_never_measured_stays(client, node, token):
    lost = gpu(3, status="lost", code=15, temperature_c=None)
    first = [gpu(n) if n != 3 else lost for n in range(8)]
    for seq in (1, 2):
        post(client, report(seq, gpus=first), token)
    other = factories.instance(boot_id="", booted_at=None)
    Gpu.objects.filter(uuid=UUIDS[0]).update(instance=other)  # it reads this GPU still
    before = Gpu.objects.get(uuid=UUIDS[3]).measurements
    node_intake._whole.due(node.pk)
    node_intake._measure.last.clear()
    hot = [gpu(n, temperature_c=60) if n != 3 else lost for n in range(8)]
    assert post(client, report(3, gpus=hot), token).status_code == 200
    rows = {row.uuid: row for row in Gpu.objects.all()}
    assert rows[UUIDS[0]].instance == other and rows[UUIDS[0]].measurements["temperature_c"] == 45
    assert rows[UUIDS[3]].measurements == before and rows[UUIDS[3]].status == "lost"
    assert {rows[UUIDS[n]].measurements["temperature_c"] for n in (1, 2, 4, 5, 6, 7)} == {60}


def test_a_gpu_whose_other_machine_has_ended_is_taken_over_by_an_unchanged_report(client, node, token):
    for seq in (1, 2):
        post(client, report(seq), token)
    gone = factories.instance(boot_id="", booted_at=None, state="terminated")
    Gpu.objects.filter(uuid=UUIDS[0]).update(instance=gone)
    node_intake._whole.due(node.pk)
    node_intake._measure.last.clear()
    post(client, report(3), token)
    assert Gpu.objects.get(uuid=UUIDS[0]).instance == node


def test_a_gpu_that_another_took_over_meanwhile_is_looked_at_in_full(client, node, token):
    """Measurements that find fewer rows than GPUs: whose they are is read at once, and not minutes later."""
    for seq in (1, 2):
        post(client, report(seq), token)
    Gpu.objects.filter(uuid=UUIDS[0]).update(instance=None)
    node_intake._whole.due(node.pk)
    node_intake._measure.last.clear()
    hot = [gpu(n, temperature_c=60) for n in range(8)]
    assert post(client, report(3, gpus=hot), token).status_code == 200
    found = Gpu.objects.filter(instance=node)
    assert found.count() == 8 and {g.measurements["temperature_c"] for g in found} == {60}


def test_a_report_needs_no_more_of_its_instance_than_its_credential_reads(client, node, token):
    """What is not read with the credential costs a query of its own each time."""
    missing = credential.by_hash(tokens._hash(token), clock.now()).instance.get_deferred_fields()
    for body in (report(1), report(2), report(3, kernel=[xid(7)], gpus=[gpu(n) for n in range(7)], gpu_count=7)):
        row = credential.by_hash(tokens._hash(token), clock.now())
        node_intake.take(row.instance, Report.model_validate(body))
        assert row.instance.get_deferred_fields() == missing


def test_how_many_gpus_there_should_be_may_be_learned_later(client, node, token):
    """The row of an exchanged GPU is let go within five minutes, although no report says anything new."""
    type(node).objects.filter(pk=node.pk).update(gpus_expected=None)
    for seq in (1, 2):
        post(client, report(seq), token)
    old = factories.gpus(node, 1)[0]
    type(node).objects.filter(pk=node.pk).update(gpus_expected=8)
    node_intake._measure.last.clear()
    node_intake._whole.last.clear()
    post(client, report(3), token)
    old.refresh_from_db()
    assert old.instance is None and Gpu.objects.filter(instance=node).count() == 8


def test_a_lost_gpu_and_its_kernel_line_are_told(client, node, token):
    post(client, report(1), token)
    lost = [gpu(n) if n != 3 else gpu(3, status="lost", code=15, temperature_c=None) for n in range(8)]
    assert post(client, report(2, gpus=lost, kernel=[xid(100)]), token).status_code == 200
    event = HealthEvent.objects.get(instance=node)
    assert (event.code, event.source, event.gpu, event.seq, event.backlog) == ("XID_79", "kernel", UUIDS[3], 100, False)
    row = Gpu.objects.get(uuid=UUIDS[3])
    assert row.status == "lost" and row.measurements["temperature_c"] == 45  # the last that was measured
    told = Interval.objects.get(instance=node, name="GPU_STATUS", gpu=UUIDS[3], until=None)
    assert told.value == "lost"


def test_a_repeat_is_accepted_without_effect(client, node, token):
    body = report(1, kernel=[xid(100)])
    post(client, body, token)
    before = list(Head.objects.values_list("last_at", "count", "digest"))
    again = post(client, body, token)
    assert again.status_code == 200 and again.json()["duplicate"] is True
    assert list(Head.objects.values_list("last_at", "count", "digest")) == before
    assert HealthEvent.objects.get().count == 1


def test_a_gpu_that_is_no_longer_listed_is_missing_and_not_forgotten(client, node, token):
    post(client, report(1), token)
    post(client, report(2, gpus=[gpu(n) for n in range(7)], gpu_count=7), token)
    assert Gpu.objects.get(uuid=UUIDS[7]).status == "missing"
    assert Gpu.objects.get(uuid=UUIDS[7]).instance == node


def test_exchanged_hardware_belongs_to_nobody(client, node, token):
    post(client, report(1), token)
    others = [gpu(n, uuid=UUIDS[n].replace("GPU-1", "GPU-9")) for n in range(8)]
    post(client, report(1, boot_id="boot-b", gpus=others), token)
    assert not Gpu.objects.filter(uuid__in=UUIDS).exclude(instance=None).exists()
    assert Gpu.objects.filter(instance=node).count() == 8


def test_one_node_cannot_take_another_ones_gpus(client, node, token):
    post(client, report(1), token)
    thief = factories.instance(gpus_expected=8)
    assert post(client, report(1), tokens.issue_node(thief, actor=system("test"))).status_code == 200
    assert Gpu.objects.filter(instance=node).count() == 8
    assert not Gpu.objects.filter(instance=thief).exists()


def test_a_spooled_report_is_dated_by_its_sender_and_its_events_wake_nobody(client, node, token):
    post(client, report(1, ago=1200), token)
    post(client, report(2, ago=1190, kernel=[xid(5, ago=1190)]), token)
    assert HealthEvent.objects.get(instance=node).backlog is True
    head = Head.objects.get(instance=node, channel="node")
    assert 1100 < (clock.now() - head.last_at).total_seconds() < 1250
    post(client, report(3), token)
    assert Interval.objects.filter(instance=node, name="GAP").exists()


def test_a_reboot_is_seen_by_the_new_boot_and_its_first_boot_time_is_kept(client, node, token):
    post(client, report(7), token)
    post(client, report(1, boot_id="boot-b", uptime_s=60.0), token)
    node.refresh_from_db()
    booted = node.booted_at
    assert node.boot_id == "boot-b" and 50 < (clock.now() - booted).total_seconds() < 75
    post(client, report(2, boot_id="boot-b", uptime_s=64.0), token)
    node.refresh_from_db()
    assert node.booted_at == booted


def test_an_unknown_uptime_is_not_a_boot_just_now(client, node, token):
    assert post(client, report(1, uptime_s=None), token).status_code == 200
    node.refresh_from_db()
    assert node.boot_id == "boot-a" and node.booted_at is None


def test_a_verb_is_asked_once_and_its_answer_kept(client, node, token):
    other = factories.instance()
    made = [
        NodeRequest.objects.create(
            instance=one,
            verb="diagnose-1",
            asked_at=clock.now(),
            asked_by="ann",
            expires_at=clock.now() + node_intake.AHEAD,
        )
        for one in (node, other)
    ]
    assert post(client, report(1), token).json()["requests"] == [{"id": str(made[0].pk), "verb": "diagnose-1"}]
    assert post(client, report(2), token).json()["requests"] == []
    result = {
        "verb": "diagnose-1", "started_at": "2026-11-30T17:00:00Z", "finished_at": "2026-11-30T17:00:09Z", "ok": False,
        "exit": 1, "output": "7 of 8", "checks": [{"name": "gpu_count", "ok": False, "detail": "7 of 8"}],
    }  # fmt: skip
    answers = [{**result, "request": str(row.pk)} for row in made] + [{**result, "request": "nonsense"}]
    assert post(client, report(3, results=answers), token).status_code == 200
    mine, theirs = (NodeRequest.objects.get(pk=row.pk) for row in made)
    assert (mine.ok, mine.output, mine.checks[0]["name"]) == (False, "7 of 8", "gpu_count") and mine.answered_at
    assert theirs.answered_at is None and theirs.output == ""


def test_an_answer_that_was_lost_asks_again(client, node, token):
    row = NodeRequest.objects.create(
        instance=node, verb="bug-report", asked_at=clock.now(), asked_by="ann", expires_at=clock.now() + node_intake.AHEAD,
        delivered_at=clock.now() - 2 * node_intake.ASK_AGAIN,
    )  # fmt: skip
    assert post(client, report(1), token).json()["requests"] == [{"id": str(row.pk), "verb": "bug-report"}]


def test_the_flight_recorder_is_kept_beside_the_events(client, node, token):
    sample = {"at": "2026-11-30T17:00:00Z", "gpus": {UUIDS[0]: {"temperature_c": 80}}}
    assert post(client, report(1, recorder=[sample]), token).status_code == 200
    row = HealthEvent.objects.get(code="FLIGHT_RECORDER")
    assert row.backlog and row.attrs["samples"] == [sample]


def test_flight_recordings_of_one_node_are_bounded_for_a_day(client, node, token, monkeypatch):
    """Each may be a MiB: who has a node must not fill the database of all."""
    assert node_intake.RECORDINGS <= 48
    monkeypatch.setattr(node_intake, "RECORDINGS", 2)
    sample = {"at": "2026-11-30T17:00:00Z", "gpus": {UUIDS[0]: {"temperature_c": 80}}}
    begun = clock.now()
    for seq, hours in enumerate((0, 1, 2, 24.5), 1):
        with clock.virtual(begun + timedelta(hours=hours)):
            sent = report(seq, recorder=[sample], sent_at=clock.now().isoformat())
            assert post(client, sent, token).status_code == 200
    kept = HealthEvent.objects.filter(code="FLIGHT_RECORDER").order_by("pk").values_list("received_at", flat=True)
    assert [round((at - begun).total_seconds() / 3600, 1) for at in kept] == [0, 1, 24.5]


def test_hostile_text_is_stored_and_breaks_nothing(client, node, token):
    line = {**xid(9), "text": "NVRM: Xid (PCI:0000:33:00): 31, pid=1, name=\u202e<script>\ud800"}
    body = report(1, driver="580\u0000.95", kernel=[line])
    answer = post(client, body, token)
    assert answer.status_code in (200, 400, 422)
    assert Instance.objects.get(pk=node.pk)

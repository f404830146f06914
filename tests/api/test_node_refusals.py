"""What a node may not post: each refusal says what to do, and nothing is stored."""

from __future__ import annotations

import http.client
import json
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.test import override_settings

from healthboard import clock, config
from healthboard.api import node_intake
from healthboard.audit.models import AuditRow
from healthboard.fleet.models import Gpu, Head, HealthEvent, Instance, Interval, Source
from healthboard.people import refused as refusals
from healthboard.people import tokens
from healthboard.people.actors import system
from healthboard.people.models import NodeRefusal, NodeToken
from tests import factories
from tests.api.node_helpers import gpu, iso, post, report, xid

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh():
    node_intake.limiter.buckets.clear()


@pytest.fixture
def node(db):
    return factories.instance(node_seen_at=None)


@pytest.fixture
def token(node):
    return tokens.issue_node(node, actor=system("test"))


def nothing_stored():
    counts = [model.objects.count() for model in (Head, Interval, HealthEvent, Gpu, Source)]
    return counts == [0] * 5 and not Instance.objects.exclude(node_seen_at=None).exists()


BAD = {
    "no JSON": ("<xml/>", 400),
    "an empty body": (" ", 400),
    "cut JSON": ('{"schema": 1', 400),
    "a list": ("[]", 422),
    "null": ("null", 422),
    "bytes that are no UTF-8": (b"\xff\xfe{}", 400),
    "an endless nesting": ("[" * 100_000, 400),
    "nothing in it": ({}, 422),
    "another schema": (lambda: report(schema=2), 422),
    "seq 0": (lambda: report(0), 422),
    "seq as text": (lambda: {**report(), "seq": "x"}, 422),
    "a huge seq": (lambda: report(2**63), 422),
    "a fraction of a GPU": (lambda: report(gpu_count=7.5), 422),
    "a GPU state that does not exist": (lambda: report(gpus=[gpu(0, status="fine")]), 422),
    "a thousand GPUs": (lambda: report(gpus=[gpu(0)] * 65), 422),
    "a temperature in words": (lambda: report(gpus=[gpu(0, temperature_c="hot")]), 422),
    "no boot": (lambda: report(boot_id=""), 422),
    "a time that is none": (lambda: report(sent_at="yesterday"), 422),
    "a boot in the year 0": (lambda: report(uptime_s=1e12), 422),
    "a verb that does not exist": (lambda: report(results=[{"request": "1", "verb": "rm -rf", "started_at": "", "finished_at": ""}]), 422),
    "a kernel line without a number": (lambda: report(kernel=[{"at": "x", "facility": 0, "level": 3, "text": "x"}]), 422),
}  # fmt: skip


@pytest.mark.parametrize("body, status", BAD.values(), ids=BAD.keys())
def test_a_bad_report_is_refused_with_a_clear_message(client, node, token, body, status):
    answer = post(client, body() if callable(body) else body, token)
    assert answer.status_code == status, answer.content
    told = answer.json()
    assert set(told) == {"error", "detail"} and told["error"] and told["detail"]
    assert nothing_stored()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_number_that_is_none_is_refused(client, node, token, value):
    body = json.dumps(report(gpus=[gpu(0, power_w=0.123)])).replace("0.123", value)
    assert post(client, body, token).status_code in (400, 422)
    assert nothing_stored()


@pytest.mark.parametrize("token_text", [None, "", "hbn_wrong", "x" * 5000, "hbn_\u00fc"])
def test_a_wrong_token_is_refused(client, node, token_text):
    answer = post(client, report(), token_text)
    assert answer.status_code == 401 and "node-token" in answer.json()["detail"]
    assert nothing_stored()


def test_a_revoked_token_is_refused(client, node, token):
    NodeToken.objects.update(revoked_at=clock.now())
    assert post(client, report(), token).status_code == 401


def test_a_token_of_a_person_is_none_of_a_node(client, node):
    person = tokens.issue_api(factories.person("admin"), actor=system("test"))
    assert post(client, report(), person).status_code == 401


def test_a_report_cannot_speak_for_another_instance(client, node, token):
    other = factories.instance(node_seen_at=None)
    answer = post(client, report(instance_id=other.instance_id, kernel=[xid(1)]), token)
    assert answer.status_code == 403 and node.instance_id in answer.json()["detail"]
    assert nothing_stored()
    assert post(client, report(instance_id=node.instance_id), token).status_code == 200


def test_a_report_from_the_future_is_refused(client, node, token):
    answer = post(client, report(sent_at=iso(clock.now() + timedelta(minutes=61))), token)
    assert answer.status_code == 422 and "clock" in answer.json()["detail"]
    assert nothing_stored()
    assert post(client, report(sent_at=iso(clock.now() + timedelta(seconds=30))), token).status_code == 200


def test_a_report_from_a_clock_that_is_ahead_is_wanted_later(client, node, token):
    """Dropped, its Xids and answers would be lost, although waiting is all that it takes."""
    told = report(sent_at=iso(clock.now() + timedelta(minutes=10)), kernel=[xid(1)])
    answer = post(client, told, token)
    assert answer.status_code == 429 and "clock" in answer.json()["detail"]
    assert nothing_stored() and 470 <= int(answer["Retry-After"]) <= 480
    with clock.virtual(clock.now() + timedelta(seconds=int(answer["Retry-After"]))):
        assert post(client, told, token).status_code == 200
    assert HealthEvent.objects.get(instance=node).code == "XID_79"


def test_another_kind_of_content_is_refused(client, node, token):
    assert post(client, report(), token, content_type="text/plain").status_code == 415
    assert post(client, report(), token, HTTP_CONTENT_ENCODING="gzip").status_code == 415
    assert nothing_stored()


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client, node, token):
    answer = post(client, b" " * (1024 * 1024 + 1), token)
    assert answer.status_code == 413 and "1048576" in answer.json()["detail"]
    assert nothing_stored()


@pytest.mark.django_db(transaction=True)
def test_ten_megabytes_over_http_get_their_answer(live_server, node, token):
    address = urlsplit(live_server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/node/reports", b"x" * 10_000_000, headers)
    answer = connection.getresponse()
    assert answer.status == 413 and json.loads(answer.read())["error"] == "too large"


def test_a_node_that_floods_is_told_to_wait_and_others_are_not(client, node, token):
    other = tokens.issue_node(factories.instance(), actor=system("test"))
    node_intake.limiter.buckets[node.pk] = (0.0, node_intake.limiter.tick())
    answer = post(client, report(), token)
    assert answer.status_code == 429 and int(answer["Retry-After"]) >= 1
    assert post(client, report(), other).status_code == 200


def test_the_bucket_fills_again():
    now = [0.0]
    assert (node_intake.BURST_SIZE, node_intake.PER_SECOND) == (120, 1), "as docs/security/rules.md says"
    limiter = node_intake.Limiter(2, 1.0, lambda: now[0])
    assert [limiter.wait(1), limiter.wait(1), limiter.wait(1)] == [0, 0, 1]
    now[0] = 1.5
    assert [limiter.wait(1), limiter.wait(1)] == [0, 1]


def test_a_node_whose_readings_turn_over_with_each_report_is_held_back(client, node, token, monkeypatch):
    """What it may fill of the database is bounded, whatever it tells; a machine that flaps is not meant by it."""
    assert (node_intake.ROWS_AT_ONCE, node_intake.ROWS_PER_SECOND) == (20_000, 1), "as docs/security/rules.md says"
    now = [0.0]
    monkeypatch.setattr(node_intake, "rows", node_intake.Limiter(500, 1.0, lambda: now[0]))
    monkeypatch.setattr(node_intake, "limited", lambda _: 0)
    monkeypatch.setattr(node_intake, "_measure", node_intake.Every(0))

    def told(seq: int) -> dict:
        """Every GPU is another one and lost every second time, each report from a boot of its own, with new events."""
        gpus = [gpu(n, uuid=f"GPU-{seq:08d}-{n}", status=("ok", "lost")[(seq + n) % 2]) for n in range(8)]
        return report(seq, boot_id=f"boot-{seq}", gpus=gpus, kernel=[xid(seq, n) for n in (79, 95, 48)])

    def kept() -> int:
        return sum(model.objects.filter(instance=node).count() for model in (Interval, HealthEvent, Gpu))

    taken = 0
    while (answer := post(client, told(taken + 1), token)).status_code == 200 and taken < 100:
        taken += 1
        level, _ = node_intake.rows.buckets[node.pk]
        assert 500 - level == kept() + Gpu.objects.filter(instance=None).count() > 0, "each row counts"
    assert 3 < taken < 40 and answer.status_code == 429, answer.content
    refused = answer.json()
    assert refused["error"] == "too much history" and f"in {answer['Retry-After']} s" in refused["detail"]
    before = kept()
    other = factories.instance()
    assert post(client, report(), tokens.issue_node(other, actor=system("test"))).status_code == 200
    now[0] += float(answer["Retry-After"]) - 1
    assert post(client, told(taken + 1), token).status_code == 429 and kept() == before
    now[0] += 1
    assert post(client, told(taken + 1), token).status_code == 200
    refusals.flush(force=True)
    assert NodeRefusal.objects.get(instance=node.instance_id, reason="too much history").count == 2
    assert AuditRow.objects.filter(verb="node.refused", summary__contains="too much history").count() == 1


def test_a_node_that_tells_the_same_or_little_else_fills_nothing(client, node, token, monkeypatch):
    monkeypatch.setattr(node_intake, "rows", node_intake.Limiter(10_000, 0.0, lambda: 0.0))
    assert post(client, report(1), token).status_code == 200
    first, _ = node_intake.rows.buckets[node.pk]
    for seq in range(2, 6):
        assert post(client, report(seq), token).status_code == 200
    assert node_intake.rows.buckets[node.pk] == (first, 0.0), "what is confirmed costs nothing"
    for seq in range(6, 16):
        gpus = [gpu(n, status="lost" if n == 3 and seq % 2 else "ok") for n in range(8)]
        assert post(client, report(seq, gpus=gpus), token).status_code == 200
    left, _ = node_intake.rows.buckets[node.pk]
    assert 10 <= first - left <= 15 * 10, "a lost GPU, and what is not known of it any more: 15 rows a turn at most"


def test_a_method_that_is_not_post_is_refused(client, token):
    assert client.get("/api/v1/node/reports", HTTP_AUTHORIZATION=f"Bearer {token}").status_code == 405


def test_openapi_shows_the_schema(client):
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    operation = paths["/api/v1/node/reports"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"boot_id", "seq", "gpus", "kernel"} <= set(schema["properties"]) and "$ref" not in json.dumps(schema)
    assert {"200", "400", "401", "403", "413", "415", "422", "429"} <= set(operation["responses"])
    assert operation["security"]


# --- enrolment, in the sandbox alone


@pytest.fixture
def key(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "enrol.key").write_text("the-key\n")
    monkeypatch.setenv("HEALTHBOARD_HOME", str(tmp_path))
    return "the-key"


def enrol(client, node, key, **more):
    body = {"instance_id": node.instance_id, "account": node.account.account_id, "region": node.region}
    return client.post(
        "/api/v1/node/enrol", json.dumps(body), content_type="application/json", HTTP_X_SANDBOX_KEY=key, **more
    )


def test_a_simulated_node_enrols_and_reports(client, node, key):
    answer = enrol(client, node, key)
    assert answer.status_code == 200
    assert post(client, report(), answer.json()["token"]).status_code == 200


def test_an_instance_that_was_not_collected_cannot_enrol_yet(client, node, key):
    node.region = "eu-west-1"
    answer = enrol(client, node, key)
    assert answer.status_code == 404 and "not collected" in answer.json()["detail"]


@pytest.mark.parametrize("wrong", ["", "x", "the-key2"])
def test_a_wrong_key_enrols_nobody(client, node, key, wrong):
    assert enrol(client, node, wrong).status_code == 403
    assert not NodeToken.objects.exists()


def test_only_loopback_enrols(client, node, key):
    assert enrol(client, node, key, REMOTE_ADDR="10.0.0.9").status_code == 403
    assert enrol(client, node, key, HTTP_X_FORWARDED_FOR="10.0.0.9").status_code == 403


def test_aws_mode_has_no_enrolment(client, node, key, monkeypatch):
    monkeypatch.setenv("HEALTHBOARD_MODE", "aws")
    with override_settings(SANDBOX=False):
        assert enrol(client, node, key).status_code == 404
    assert config.mode() == "aws"

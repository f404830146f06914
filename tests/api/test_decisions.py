import pytest
from django.test import Client

from healthboard.api import decisions
from healthboard.cases.models import Decision
from healthboard.refusals import AlreadyDecided, Changed, Closed, Held, Invalid, NotAllowed
from tests import factories

pytestmark = pytest.mark.django_db


def body(row, **changed):
    sent = {
        "decision": "dismiss",
        "reason": "seen before",
        "plan_version": row.plan_version,
        "evidence_hash": row.evidence_hash,
    }
    return {**sent, **changed}


def where(row):
    return f"/cases/{row.pk}/decisions"


def test_a_dismissal_closes_the_case_under_the_callers_name(calling):
    row, operator = factories.case(), calling("operator")
    answer = operator.post(where(row), body(row))
    assert answer.status_code == 200, answer.content
    item = answer.json()
    assert (item["case"], item["decision"], item["actor"], item["via"]) == (
        row.pk,
        "dismiss",
        operator.user.username,
        "api",
    )
    row.refresh_from_db()
    assert (row.state, row.resolution) == ("CLOSED", "DISMISSED")
    again = operator.post(where(row), body(row))
    assert again.status_code == 409 and again.json()["error"] == "closed"


def test_a_snooze_that_names_no_time_lasts_an_hour(calling):
    row = factories.case()
    answer = calling("operator").post(where(row), body(row, decision="snooze", reason=""))
    assert answer.status_code == 200, answer.content
    row.refresh_from_db()
    assert row.state == "SNOOZED" and 3500 < (row.snoozed_until - Decision.objects.get().at).total_seconds() < 3700


def test_a_decision_on_what_has_changed_is_refused_and_says_what_holds_now(calling):
    row = factories.case()
    answer = calling("operator").post(where(row), body(row, evidence_hash="0" * 64))
    assert answer.status_code == 409
    assert answer.json()["error"] == "changed" and answer.json()["evidence_hash"] == row.evidence_hash
    assert not Decision.objects.exists()


@pytest.mark.parametrize("role, status", [("viewer", 403), ("", 403)])
def test_who_only_reads_decides_nothing(calling, role, status):
    row = factories.case()
    assert calling(role).post(where(row), body(row)).status_code == status
    row.refresh_from_db()
    assert row.state == "WAITING"


def test_a_case_out_of_scope_does_not_exist(calling):
    row = factories.case(factories.instance(factories.pool("infer")))
    assert calling("operator", pool="train").post(where(row), body(row)).status_code == 404
    assert calling("operator").post("/cases/999999/decisions", body(row)).status_code == 404


@pytest.mark.parametrize(
    "refusal, status, name",
    [
        (Invalid("x"), 422, "invalid"),
        (NotAllowed("x", again=True), 403, "not_allowed"),
        (Changed("x", changes=["a"]), 409, "changed"),
        (AlreadyDecided("x", decision=object()), 409, "already_decided"),
        (Closed("x"), 409, "closed"),
        (Held("x"), 409, "held"),
    ],
)
def test_each_refusal_has_its_status_and_name(calling, monkeypatch, refusal, status, name):
    def refuse(*args, **kwargs):
        raise refusal

    monkeypatch.setattr(decisions, "answer", refuse)
    row = factories.case()
    answer = calling("operator").post(where(row), body(row))
    assert answer.status_code == status and answer.json()["error"] == name and answer.json()["detail"] == "x"


BAD = [
    ("not json", "application/json", 400),
    ("", "application/json", 422),
    ("[]", "application/json", 422),
    ("null", "application/json", 422),
    ('{"decision": "explode", "plan_version": 1, "evidence_hash": "a"}', "application/json", 422),
    ('{"decision": "approve"}', "application/json", 422),
    ('{"decision": "approve", "plan_version": 99999999999, "evidence_hash": "a"}', "application/json", 422),
    ('{"decision": "dismiss", "reason": "\\u0000", "plan_version": 1, "evidence_hash": "a"}', "application/json", 422),
    ('{"decision": "dismiss", "reason": "\\ud800", "plan_version": 1, "evidence_hash": "a"}', "application/json", 422),
    ('{"decision": "approve", "plan_version": 1, "evidence_hash": "a", "surprise": 1}', "application/json", 422),
    ("decision=approve", "application/x-www-form-urlencoded", 415),
    ('{"decision": "approve", "plan_version": 1, "evidence_hash": "a"}', "text/plain", 415),
    ('{"decision": "override", "plan_version": 1, "evidence_hash": "a", "action": "REBOOT"}', "application/json", 422),
    ("[" * 100_000, "application/json", 400),
    ("x" * (3 * 1024 * 1024), "application/json", 413),
]


@pytest.mark.parametrize("sent, kind, status", BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_a_bad_body_is_refused_and_nothing_is_stored(calling, sent, kind, status):
    row = factories.case()
    answer = calling("operator").post(where(row), sent, content_type=kind)
    assert answer.status_code == status, answer.content
    assert {"error", "detail"} <= set(answer.json())
    assert not Decision.objects.exists()


def test_a_browsers_session_needs_its_csrf_token():
    client = Client(enforce_csrf_checks=True)
    row = factories.case()
    path = f"/api/v1{where(row)}"
    assert client.post(path, body(row), content_type="application/json").status_code == 401
    client.force_login(factories.person("operator"))
    refused = client.post(path, body(row), content_type="application/json")
    assert refused.status_code == 403 and "CSRF" in refused.json()["detail"]
    from django.conf import settings

    token = "a" * 32
    client.cookies[settings.CSRF_COOKIE_NAME] = token
    answer = client.post(path, body(row), content_type="application/json", HTTP_X_CSRFTOKEN=token)
    assert answer.status_code == 200, answer.content


def test_a_wrong_token_is_not_rescued_by_a_session(client):
    client.force_login(factories.person("operator"))
    row = factories.case()
    answer = client.post(
        f"/api/v1{where(row)}", body(row), content_type="application/json", HTTP_AUTHORIZATION="Bearer x"
    )
    assert answer.status_code == 401


def test_who_asks_too_often_is_told_when_to_come_back(calling, monkeypatch):
    from django.core.cache import cache

    from healthboard.api import lists

    [throttle] = lists.router.throttle if isinstance(lists.router.throttle, list) else [lists.router.throttle]
    monkeypatch.setattr(throttle, "num_requests", 2)
    cache.clear()
    viewer = calling("viewer")
    answers = [viewer.get("/cases") for _ in range(3)]
    assert [a.status_code for a in answers] == [200, 200, 429]
    assert int(answers[2]["Retry-After"]) >= 1 and answers[2].json()["error"] == "too_many_requests"
    assert calling("viewer").get("/cases").status_code == 200

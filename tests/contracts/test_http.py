"""The HTTP contract, as another program uses it."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from healthboard.people.sandbox import ensure_sandbox_people
from healthboard.policies.versions import ensure_default
from tests import factories

pytestmark = pytest.mark.django_db

KEYS = {
    "id", "instances", "codes", "verdict", "action", "state", "resolution", "plan_version", "evidence_hash",
}  # fmt: skip


@pytest.fixture
def case(db):
    factories.switch()
    ensure_default()
    return factories.case(action="REBOOT", state="WAITING")


@pytest.fixture
def body(case):
    return {"decision": "dismiss", "reason": "known", "plan_version": case.plan_version,
            "evidence_hash": case.evidence_hash}  # fmt: skip


def test_cases_and_repairs_have_their_keys_and_kinds(calling, case):
    repair = factories.repair()
    caller = calling("viewer")
    (item,) = caller.get("/cases").json()["items"]
    assert set(item) >= KEYS
    assert (item["id"], item["instances"], item["codes"]) == (case.pk, [case.instance.instance_id], ["XID_119"])
    assert (item["verdict"], item["action"], item["state"]) == ("AMBIGUOUS", "REBOOT", "WAITING")
    assert item["resolution"] == "" and item["evidence_hash"] == case.evidence_hash
    assert item["plan_version"] == case.plan_version
    (item,) = caller.get("/repairs").json()["items"]
    assert set(item) >= KEYS and (item["id"], item["instances"]) == (repair.pk, [repair.instance.instance_id])


@pytest.mark.parametrize("path", ["/cases", "/repairs", "/instances"])
def test_an_empty_parameter_is_one_left_out(calling, case, path):
    factories.repair(case.instance)
    caller = calling("viewer")
    empty = dict.fromkeys(("instance", "state", "format", "after", "limit", "case", "pool", "verdict", "gone"), "")
    answer = caller.get(path, **empty)
    assert answer.status_code == 200, answer.content
    assert answer.json() == caller.get(path).json() and len(answer.json()["items"]) == 1


@pytest.mark.parametrize(
    "path", ["/api/v1/cases", "/api/v1/repairs", "/api/v1/instances", "/fleet/", "/repairs/", "/audit/"]
)
def test_every_list_is_json_and_csv_too(client, case, path):
    user = factories.person("viewer")
    factories.repair(case.instance)
    factories.audit("test.done", "something was done", by=factories.actor(user))
    client.force_login(user)
    told = client.get(path, {"format": "json"})
    assert told.headers["Content-Type"].startswith("application/json")
    table = client.get(path, {"format": "csv"})
    assert table.headers["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(table.getvalue().decode())))
    items = json.loads(told.getvalue())["items"]  # a long list is sent in parts
    assert len(rows) == len(items) >= 1
    assert set(rows[0]) == set(items[0])


@pytest.mark.parametrize("path", ["/", "/fleet/", "/repairs/", "/audit/"])
def test_a_page_with_empty_filters_is_the_page_without(client, case, path):
    client.force_login(factories.person("viewer"))
    names = ("state", "stage", "pool", "verdict", "instance", "q", "sort", "tab", "format", "after", "gone", "case")
    assert client.get(path, dict.fromkeys(names, "")).status_code == 200


def test_each_way_of_deciding_has_its_status(calling, client, case, body):
    path, caller = f"/cases/{case.pk}/decisions", calling("operator")
    assert client.post(f"/api/v1{path}", body, content_type="application/json").status_code == 401
    assert calling("viewer").post(path, body).status_code == 403
    assert caller.post(f"/cases/{case.pk + 999}/decisions", body).status_code == 404
    assert caller.post(path, {**body, "plan_version": case.plan_version + 1}).status_code == 409
    assert caller.post(path, {**body, "evidence_hash": "0" * 64}).status_code == 409
    assert caller.post(path, {**body, "decision": "ponder"}).status_code == 422
    assert caller.post(path, {**body, "reason": ""}).status_code == 422
    assert caller.post(path, {k: v for k, v in body.items() if k != "evidence_hash"}).status_code == 422
    assert caller.post(path, {**body, "decision": "override"}).status_code == 422
    assert caller.post(path, "{", content_type="application/json").status_code == 400
    assert (
        caller.post(path, {"decision": "dismiss"}, content_type="application/x-www-form-urlencoded").status_code == 415
    )
    case.refresh_from_db()
    assert case.state == "WAITING"
    answer = caller.post(path, body)  # `action` may be left out
    assert answer.status_code == 200 and answer.json()["decision"] == "dismiss"
    again = caller.post(path, body)
    assert again.status_code == 409 and set(again.json()) >= {"error", "detail"}


def test_a_decision_takes_every_key_that_the_contract_names(calling, case, body):
    answer = calling("operator").post(f"/cases/{case.pk}/decisions", {**body, "action": ""})
    assert answer.status_code == 200, answer.content
    second = factories.case(action="DIAGNOSE")
    sent = {**body, "decision": "approve", "action": "DIAGNOSE", "reason": "", "plan_version": second.plan_version,
            "evidence_hash": second.evidence_hash}  # fmt: skip
    answer = calling("operator").post(f"/cases/{second.pk}/decisions", sent)
    assert answer.status_code == 200, answer.content


def test_what_watches_healthboard_needs_no_log_in(client, monkeypatch):
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code in (200, 503)
    assert client.get("/metrics").status_code == 401
    monkeypatch.setenv("HEALTHBOARD_METRICS_TOKEN", "a-token-for-tests")
    assert client.get("/metrics", HTTP_AUTHORIZATION="Bearer wrong").status_code == 401
    numbers = client.get("/metrics", HTTP_AUTHORIZATION="Bearer a-token-for-tests")
    assert numbers.status_code == 200 and numbers.content.startswith(b"# HELP ")


def test_the_description_of_the_api_is_there(client):
    described = client.get("/api/v1/openapi.json")
    assert described.headers["Content-Type"].startswith("application/json")
    document = json.loads(described.content)
    assert document["openapi"].startswith("3.")
    paths = document["paths"]
    assert {"get"} <= set(paths["/api/v1/cases"]) and {"get"} <= set(paths["/api/v1/repairs"])
    assert "post" in paths["/api/v1/cases/{case_id}/decisions"] and "post" in paths["/api/v1/node/reports"]


def test_the_log_in_form_works_for_each_of_the_sandboxs_people(client):
    ensure_sandbox_people("a-password-for-tests-only")
    for name in ("viewer", "operator", "approver", "admin"):
        client.logout()
        form = client.get("/accounts/login/")
        assert form.status_code == 200
        names = set(re.findall(r'<input[^>]*name="(\w+)"', form.content.decode()))
        assert {"username", "password", "csrfmiddlewaretoken"} <= names
        assert client.get("/").headers["Location"].startswith("/accounts/login/")
        answer = client.post("/accounts/login/", {"username": name, "password": "a-password-for-tests-only"})
        assert answer.status_code == 302 and client.get("/").status_code == 200
    wrong = client.post("/accounts/login/", {"username": "admin", "password": "not it"})
    assert wrong.status_code == 200

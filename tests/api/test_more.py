"""The rest of the API: the record, figures, the fleet's parts, policies, and what is asked for by hand."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from healthboard import clock
from healthboard.api import policies
from healthboard.audit import chain
from healthboard.audit.models import AuditRow
from healthboard.cases.models import Case
from healthboard.people import tokens
from healthboard.people.models import ApiToken, Grant
from healthboard.policies.models import Policy
from healthboard.policies.versions import ensure_default
from healthboard.repairs.models import Pause, Repair
from tests import factories as make
from tests.cases import scene


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


@pytest.fixture
def calling(db, client):
    """`calling("operator", pool="train")` gives `ask(method, path, body)` with a token of a new person."""

    def caller(role="viewer", **scope):
        user = make.person(role, **scope)
        bearer = f"Bearer {tokens.issue_api(user, actor=make.actor(user))}"

        def ask(method: str, path: str, body=None, **query):
            more = (
                {"data": json.dumps(body), "content_type": "application/json"} if body is not None else {"data": query}
            )
            return getattr(client, method)(f"/api/v1{path}", HTTP_AUTHORIZATION=bearer, **more)

        return ask

    return caller


@pytest.fixture
def sick(db):
    """An instance with a case and everything that makes a plan possible."""
    make.switch()
    ensure_default()
    for name, scope in (("ec2", ""), ("ecs", "gpu"), ("autoscaling", "")):
        make.source(name, scope=scope)
    on = make.instance()
    make.gpus(on, 2)
    return on


def _ids(answer) -> list[int]:
    assert answer.status_code == 200, answer.content
    return [item["id"] for item in answer.json()["items"]]


def test_decisions_are_listed_by_case_kind_and_actor(calling, sick):
    case, user = make.case(sick), make.person("operator", "ann")
    auto, hers = make.decision(case, kind="auto"), make.decision(case, user, "dismiss", reason="=1+1")
    ask = calling()
    assert _ids(ask("get", "/decisions")) == [hers.pk, auto.pk]
    assert _ids(ask("get", "/decisions", kind="auto")) == [auto.pk]
    assert _ids(ask("get", "/decisions", actor="ann", case=case.pk)) == [hers.pk]
    assert _ids(ask("get", "/decisions", limit=1, after=hers.pk)) == [auto.pk]
    row = next(csv.DictReader(io.StringIO(ask("get", "/decisions", format="csv").content.decode())))
    assert row["reason"] == "'=1+1"
    assert ask("get", "/decisions", kind="whim").status_code == 422


def test_gpus_and_pools_tell_what_is_there(calling, sick):
    make.instance(sick.pool, ecs_status="DRAINING")
    make.repair(sick)
    gone = make.instance(sick.pool, gone_at=clock.now())
    make.gpus(gone, 1)
    ask = calling()
    assert len(_ids(ask("get", "/gpus"))) == 2
    assert len(_ids(ask("get", "/gpus", gone="true"))) == 3
    assert len(_ids(ask("get", "/gpus", instance=sick.instance_id, status="ok", pool="train"))) == 2
    assert _ids(ask("get", "/gpus", status="lost")) == []
    (pool,) = ask("get", "/pools").json()["items"]
    assert (pool["name"], pool["instances"], pool["out"], pool["repairs"]) == ("train", 2, 1, 1)


def test_the_record_and_the_figures_are_those_of_the_pages(calling, client, sick):
    case = make.case(sick, state="CLOSED", resolution="DISMISSED")
    make.audit("case.closed", "dismissed", by=make.actor(make.person("viewer")), case_id=case.pk, instance=sick)
    chain.seal()
    ask = calling()
    (row,) = ask("get", "/audit", case=case.pk, verb="case").json()["items"]
    assert row["summary"] == "dismissed" and row["hash"] and row["position"] == AuditRow.objects.get(pk=row["id"]).seal.position  # fmt: skip
    assert ask("get", "/audit", since="2999-01-01").json()["items"] == []
    assert ask("get", "/audit", since="2026-02-31").status_code == 422
    client.force_login(make.person("viewer"))
    page, told = client.get("/statistics/?format=json").json(), ask("get", "/statistics").json()
    assert told == page and told["false_alarms"] == 1
    assert len(list(csv.DictReader(io.StringIO(ask("get", "/statistics", format="csv").content.decode())))) == len(told["items"])  # fmt: skip
    found = ask("get", f"/cases/{case.pk}/report").json()
    assert found["audit_head"]["hash"] == chain.end().hash and found["evidence"][0]["hash"] == case.evidence_hash
    assert ask("get", "/cases/999999/report").status_code == 404


def test_each_sees_their_own_places(calling, sick):
    elsewhere = make.pool("west", account=make.account("444455556666"))
    theirs = make.instance(elsewhere)
    make.gpus(theirs, 1)
    case = make.case(theirs)
    make.decision(case)
    make.audit("case.note", "x", by=make.actor(make.person("viewer")), case_id=case.pk, instance=theirs)
    Policy.objects.create(name="theirs", account="444455556666")
    Policy.objects.create(name="mine", pool="train")
    ask = calling("operator", account=sick.account)
    assert len(_ids(ask("get", "/gpus"))) == 2 and len(_ids(ask("get", "/pools"))) == 1
    assert _ids(ask("get", "/decisions")) == [] and ask("get", "/statistics").json()["cases"] == 0
    assert "case.note" not in {row["verb"] for row in ask("get", "/audit").json()["items"]}
    assert {p["name"] for p in ask("get", "/policies").json()["items"]} == {"Fleet default", "mine"}
    assert {p["name"] for p in calling()("get", "/policies").json()["items"]} == {"Fleet default", "mine", "theirs"}
    assert ask("get", f"/cases/{case.pk}/report").status_code == 404
    assert ask("get", f"/instances/{theirs.pk}/actions/DRAIN").status_code == 404
    assert ask("post", f"/instances/{theirs.pk}/actions", {"action": "DRAIN", "reason": "x", "seen": "0" * 64}).status_code == 404  # fmt: skip
    assert ask("post", f"/instances/{theirs.pk}/pauses", {"reason": "x", "length_s": 60}).status_code == 404
    assert calling("")("get", "/gpus").status_code == 403


def test_an_action_by_hand_goes_the_way_of_the_page(calling, sick):
    ask, path = calling("operator"), f"/instances/{sick.pk}/actions"
    shown = ask("get", f"{path}/DRAIN").json()
    assert shown["why_not"] is None and shown["plan"]["action"] == "DRAIN" and shown["case"] is None
    body = {"action": "DRAIN", "reason": "to look at it", "seen": shown["seen"]}
    assert calling("viewer")("post", path, body).status_code == 403
    assert ask("post", path, {**body, "reason": " "}).status_code == 422
    assert ask("post", path, {**body, "seen": "0" * 64}).status_code == 409
    assert ask("post", path, {**body, "action": "EXPLODE"}).status_code == 422
    assert not Repair.objects.exists()
    made = ask("post", path, body)
    assert made.status_code == 200, made.content
    repair = Repair.objects.get()
    assert made.json()["repair"] == repair.pk and (repair.action, repair.automatic) == ("DRAIN", False)
    assert Case.objects.get(pk=made.json()["case"]).by_hand
    assert AuditRow.objects.filter(via="api", case_id=made.json()["case"]).exists()
    assert ask("post", path, body).status_code == 409


def test_a_pause_is_set_and_ended_by_who_may(calling, sick):
    ask, path, body = calling("admin"), f"/instances/{sick.pk}/pauses", {"reason": "a demo", "length_s": 3600}
    assert calling("operator")("post", path, body).status_code == 403
    assert ask("post", path, {**body, "length_s": 8 * 86400}).status_code == 422
    set_ = ask("post", path, body).json()
    assert _ids(calling()("get", "/pauses")) == [set_["id"]]
    assert _ids(calling("viewer", account=make.account("444455556666"))("get", "/pauses")) == []
    assert _ids(calling("viewer", pool="infer")("get", "/pauses")) == []
    assert calling("operator")("post", f"/pauses/{set_['id']}/end", {}).status_code == 403
    assert ask("post", f"/pauses/{set_['id']}/end", {}).json()["ended_at"]
    assert not Pause.objects.filter(ended_at=None).exists()
    assert ask("post", f"/pauses/{set_['id']}/end", {}).status_code == 404


YAML = "version: 1\npolicies:\n- name: night\n  match: {pool: train}\n  settings: {tries_24h: 1}\n"


def test_policies_are_applied_by_an_admin_who_logged_in_lately_and_by_no_token(calling, client, sick):
    refused = calling("admin")("post", "/policies/apply", {"yaml": YAML})
    assert refused.status_code == 403 and "a token proves nobody's presence" in refused.json()["detail"]
    client.force_login(make.person("admin"))
    session = client.session
    session["auth_at"] = clock.now().isoformat()
    session.save()

    def apply(**body):
        return client.post(
            "/api/v1/policies/apply", json.dumps({"yaml": YAML, **body}), content_type="application/json"
        )

    assert apply(yaml="no: policies").status_code == 422
    tried = apply(dry_run=True)
    assert tried.status_code == 200 and tried.json()["changes"] and not Policy.objects.filter(name="night").exists()
    done = apply(reason="from git")
    assert done.json()["changes"] == tried.json()["changes"]
    assert Policy.objects.get(name="night").current.reason == "from git"
    assert apply().json()["changes"] == []
    assert ApiToken.objects.exists()


def test_a_pipelines_token_exports_checks_and_previews_policies_and_saves_none(client, db):
    """A service account with the scope for it, and the role admin in one pool."""
    ensure_default()
    home = make.pool("train", "GROUP")
    scene.asked(home=home)
    scene.asked(home=scene.solo())
    by = make.actor(make.person("admin"))
    robot = tokens.make_service("gitops", "keeps policies in git", actor=by)
    Grant.objects.create(user=robot, role="admin", pool="train")
    token = tokens.issue_api(robot, actor=by, scope="policies")

    def ask(method, path, body=None):
        return getattr(client, method)(f"/api/v1{path}", json.dumps(body) if body else None, content_type="application/json",
                                       HTTP_AUTHORIZATION=f"Bearer {token}")  # fmt: skip

    night = YAML.replace("tries_24h: 1", "mode_ambiguous: auto")
    checked = ask("post", "/policies/apply", {"yaml": night, "dry_run": True})
    assert checked.status_code == 200 and "night: made" in checked.json()["changes"]
    assert ask("post", "/policies/apply", {"yaml": night.replace("train", "solo"), "dry_run": True}).status_code == 403
    assert ask("post", "/policies/apply", {"yaml": "][", "dry_run": True}).status_code == 422
    found = ask("post", "/policies/preview", {"yaml": night, "days": 1}).json()
    assert (found["days"], found["cases"], found["alike"]) == (1, 1, 0), found
    assert [(line["then"], line["now"]) for line in found["lines"]] == [
        ("Drain and reboot: asks a person", "Drain and reboot: by itself")
    ]
    assert ask("post", "/policies/preview", {"yaml": night.replace("train", "solo")}).status_code == 403
    assert yaml.safe_load(ask("get", "/policies/export").json()["yaml"])["policies"] == [
        {"name": "Fleet default", "default": True}
    ]
    refused = ask("post", "/policies/apply", {"yaml": night})
    assert refused.status_code == 403 and "a person does it" in refused.json()["detail"]
    assert not Policy.objects.filter(name="night").exists()
    assert ask("post", f"/cases/{Case.objects.first().pk}/undo").status_code == 403, "it may nothing else"


def test_a_file_of_many_policies_holds_no_thread_for_long_and_is_not_sent_without_end(client, db, monkeypatch):
    """Each policy is compared with all others: a MiB of them would take hours, in one of a few threads."""
    ensure_default()
    by = make.actor(make.person("admin"))
    token = tokens.issue_api(by.user, actor=by, scope="policies")
    told = {"content_type": "application/json", "HTTP_AUTHORIZATION": f"Bearer {token}"}
    rows = "".join(f"- {{name: p{n}, match: {{pool: q{n}}}}}\n" for n in range(3))
    file = json.dumps({"yaml": f"version: 1\npolicies:\n{rows}"})
    assert policies.SECONDS <= 10
    monkeypatch.setattr(policies, "SECONDS", 0)
    for where in ("apply", "preview"):
        body = {**json.loads(file), **({"dry_run": True} if where == "apply" else {})}
        answer = client.post(f"/api/v1/policies/{where}", json.dumps(body), **told)
        assert answer.status_code == 422 and "Only 0 of 3 policies could be looked at in 0 s" in answer.json()["detail"]
    monkeypatch.undo()
    said = [client.post(f"/api/v1/policies/{w}", file, **told).status_code for w in ("preview", "apply") * 10]
    assert set(said[:18]) == {200, 403} and set(said[18:]) == {429}, said


def test_policies_are_not_even_read_for_who_may_edit_none(calling, client, sick):
    admin = make.person("admin")
    read = tokens.issue_api(admin, actor=make.actor(admin), scope="read")

    def as_reader(text):
        return client.post(
            "/api/v1/policies/apply", json.dumps({"yaml": text}), content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {read}",
        )  # fmt: skip

    for text in ("version: 1\npolicies: []", "]["):
        refused = calling("viewer")("post", "/policies/apply", {"yaml": text}), as_reader(text)
        assert [answer.status_code for answer in refused] == [403, 403]
        assert "role admin" in refused[0].json()["detail"] and "another scope" in refused[1].json()["detail"]


@pytest.mark.parametrize(
    "text, words",
    [
        (YAML.replace("pool: train", "tags: {a: &a [x], b: *a}"), "aliases such as *a"),
        (YAML.replace("pool: train", "tags: {a: {b: [c]}}"), "the tag a takes one text"),
        (YAML.replace("tries_24h: 1", "undo_s: [1]"), "must be a whole number of seconds"),
        (YAML.replace("tries_24h: 1", 'approver_group: "\\ud800"'), "cannot be stored"),
    ],
)
def test_what_is_no_policy_is_unprocessable(client, sick, text, words):
    client.force_login(make.person("admin"))
    session = client.session
    session["auth_at"] = clock.now().isoformat()
    session.save()
    answer = client.post("/api/v1/policies/apply", json.dumps({"yaml": text}), content_type="application/json")
    assert answer.status_code == 422 and words in answer.json()["detail"]


def test_rows_of_lists_are_as_they_are_described(calling, client, sick):
    """They are sent without being validated each time."""
    make.decision(make.case(sick))
    make.repair(sick)
    make.pause(scope="train")
    make.breaker("train")
    gpu = sick.gpus.first()
    gpu.condemned_at, gpu.condemned_why = clock.now(), "lost"
    gpu.save()
    ask, described = calling("admin"), client.get("/api/v1/openapi.json").json()["components"]["schemas"]
    lists = {"cases": "CaseItem", "repairs": "RepairItem", "instances": "InstanceItem", "decisions": "DecisionItem",
             "gpus": "GpuItem", "pools": "PoolItem", "policies": "PolicyItem", "audit": "AuditItem", "pauses": "PauseItem",
             "condemned": "CondemnedItem", "breakers": "BreakerItem"}  # fmt: skip
    for path, schema in lists.items():
        answer = ask("get", f"/{path}")
        assert answer.status_code == 200 and answer["Content-Type"] == "application/json; charset=utf-8"
        for item in answer.json()["items"][:1] or [{}]:
            assert set(item) == set(described[schema]["properties"]), path

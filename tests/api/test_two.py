"""What takes two people through the API: asked for in one person's session, confirmed in another's; a token proves
nobody's presence."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.audit.models import AuditRow
from healthboard.people import tokens
from healthboard.people.models import Request
from healthboard.people.web import AUTH_AT
from healthboard.repairs import second as repairs
from healthboard.repairs.models import Breaker, Repair
from tests import factories as make
from tests.cases import scene

CHOICES = [{"key": "terminate_first", "title": "Terminate first", "needs": "terminate_first"},
           {"key": "replace", "title": "Replace it", "needs": "decide"}]  # fmt: skip


class Session:
    """A person's log-in in a browser, which sends its form token along."""

    def __init__(self, role: str, name: str = "", **scope):
        self.user = make.person(role, name or role, **scope)
        self.client = Client(enforce_csrf_checks=True)
        self.client.force_login(self.user)
        self.since(clock.now())
        self.client.get("/accounts/again/")

    def since(self, at):
        session = self.client.session
        session[AUTH_AT] = at.isoformat()
        session.save()
        return self

    def get(self, path: str):
        return self.client.get(f"/api/v1{path}")

    def post(self, path: str, **body):
        more = {"HTTP_X_CSRFTOKEN": self.client.cookies[settings.CSRF_COOKIE_NAME].value}
        return self.client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json", **more)


class Bearer(Session):
    def __init__(self, user, scope: str = "all", **place):
        token = tokens.issue_api(user, actor=make.actor(user), scope=scope, **place)
        self.client, self.headers = Client(), {"HTTP_AUTHORIZATION": f"Bearer {token}"}

    def get(self, path: str):
        return self.client.get(f"/api/v1{path}", **self.headers)

    def post(self, path: str, **body):
        return self.client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json", **self.headers)


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


@pytest.fixture
def asking(db):
    """A repair that asks, and may be answered with what takes two."""
    scene.acting()
    row = make.repair(scene.machine(), state="ASKING", why_waiting="no capacity", facts={"choices": CHOICES})
    make.steps(row, "launch")
    return row


def _asked(who: Session, row: Repair, kind: str = "terminate_first"):
    return who.post("/requests", kind=kind, id=row.pk, reason="full")


def test_it_is_asked_for_in_one_session_and_carried_out_once_another_confirmed_it(asking):
    olga, anna = Session("operator", "olga"), Session("approver", "anna")
    (first, _) = olga.get(f"/repairs/{asking.pk}").json()["choices"]
    assert (first["key"], first["needs"], first["why_not"]) == ("terminate_first", "terminate_first", None)
    row = _asked(olga, asking).json()
    assert (row["state"], row["subject"], row["asked_by"]) == ("WAITING", f"repair:{asking.pk}", "olga")
    assert row["why_not"].startswith("You asked for it") and Repair.objects.get().state == "ASKING"
    assert _asked(olga, asking).status_code == 409
    assert [one["why_not"] for one in anna.get("/requests").json()["items"]] == [None]
    assert f"repair:{asking.pk}" in anna.get("/requests?format=csv").content.decode()
    assert olga.post(f"/requests/{row['id']}/confirm").status_code == 403
    done = anna.post(f"/requests/{row['id']}/confirm").json()
    assert (done["state"], done["answered_by"], done["why_not"]) == ("CONFIRMED", "anna", None)
    repair = Repair.objects.get()
    assert (repair.state, repair.allowed) == ("RUNNING", ["terminate_first"])
    assert anna.post(f"/requests/{row['id']}/confirm").status_code == 409
    assert anna.get("/requests").json()["items"] == [] and olga.get(f"/requests/{row['id']}").json() == done


def test_a_token_reads_refuses_and_takes_back_but_neither_asks_nor_confirms(asking):
    olga, anna = Session("operator", "olga"), Session("approver", "anna")
    refused = _asked(Bearer(olga.user), asking)
    assert refused.status_code == 403 and "a token proves nobody's presence" in refused.json()["detail"]
    row = _asked(olga, asking).json()
    ((shown,), path) = Bearer(anna.user).get("/requests").json()["items"], f"/requests/{row['id']}"
    assert "a token proves nobody's presence" in shown["why_not"]
    refused = Bearer(anna.user).post(f"{path}/confirm")
    assert refused.status_code == 403 and refused.json()["again"] and Repair.objects.get().state == "ASKING"
    assert Bearer(olga.user, "read").post(f"{path}/refuse").status_code == 403
    assert Bearer(olga.user, "decide", pool="elsewhere").post(f"{path}/refuse").status_code == 404
    assert Bearer(anna.user).post(f"{path}/refuse").status_code == 422, "without a reason"
    assert Request.objects.get().state == "WAITING"
    assert Bearer(olga.user, "decide").post(f"{path}/refuse").json()["state"] == "WITHDRAWN"
    other = _asked(olga, asking).json()
    said = Bearer(anna.user).post(f"/requests/{other['id']}/refuse", reason="wait for the block").json()
    assert (said["state"], said["answer"]) == ("REFUSED", "wait for the block")


def test_a_log_in_that_is_too_old_is_told_so_and_a_form_of_another_site_is_refused(asking):
    olga = Session("operator", "olga").since(clock.now() - timedelta(minutes=16))
    refused = _asked(olga, asking)
    assert refused.status_code == 403 and "Log in again" in refused.json()["detail"]
    told = {"kind": "terminate_first", "id": asking.pk, "reason": "x"}
    forged = olga.client.post("/api/v1/requests", json.dumps(told), content_type="application/json")
    assert forged.status_code == 403 and "CSRF" in forged.json()["detail"] and not Request.objects.exists()


def test_what_takes_two_is_no_plain_answer_and_the_rest_is(asking):
    olga = Session("operator", "olga")
    path = f"/repairs/{asking.pk}/answers"
    assert olga.post(path, choice="terminate_first", reason="x").status_code == 403
    assert olga.post(path, choice="again", reason="x").status_code == 422
    assert olga.post(path, choice="replace", reason="the board is bad").json() == {"repair": asking.pk, "more": 0}
    assert Repair.objects.get().facts["answer"] == "replace"
    assert olga.post(f"/repairs/{asking.pk}/stop").json()["state"] == "RUNNING"
    assert Repair.objects.get().stop_asked_by == "olga"


def test_how_many_more_must_choose_the_same_is_told(asking):
    Repair.objects.update(settings={**asking.settings, "approvals": 2})
    olga, anna = Session("operator", "olga"), Session("approver", "anna")
    path = f"/repairs/{asking.pk}/answers"
    assert olga.post(path, choice="replace", reason="bad").json()["more"] == 1
    (_, second) = anna.get(f"/repairs/{asking.pk}").json()["choices"]
    assert second["people"] == "takes 2 people; chosen by olga so far" and second["why_not"] is None
    assert Bearer(anna.user).post(path, choice="replace", reason="bad").json()["more"] == 0
    assert Repair.objects.get().state == "RUNNING"


def test_a_breaker_is_found_and_released_with_its_group_case(db):
    scene.acting()
    on = scene.machine()
    breaker, alone = make.breaker("train"), make.breaker(on.zone, scope_kind="zone")
    group = make.case(None, verdict="CORRELATED", breaker=breaker, pool=on.pool)
    ada, anna = Session("admin", "ada"), Session("approver", "anna")
    assert {one["id"]: one["case"] for one in anna.get("/breakers").json()["items"]} == {
        breaker.pk: group.pk,
        alone.pk: None,
    }
    row = ada.post("/requests", kind="release", id=breaker.pk, reason="the cable was found").json()
    assert (row["kind"], row["subject"]) == ("release_case", f"case:{group.pk}")
    assert anna.post(f"/requests/{row['id']}/confirm").json()["state"] == "CONFIRMED"
    other = ada.post("/requests", kind="release", id=alone.pk, reason="power is back").json()
    assert anna.post(f"/requests/{other['id']}/confirm").status_code == 200
    assert not Breaker.objects.filter(released_at=None).exists() and anna.get("/breakers").json()["items"] == []
    assert ada.post("/requests", kind="release_case", id=group.pk, reason="x").status_code == 409


def test_what_waits_is_listed_without_a_look_at_each_for_who_may_not_confirm_it(db):
    admin, viewer, approver = Session("admin"), Session("viewer"), Session("approver")

    def asked(*pools: str) -> dict[str, int]:
        for pool in pools:
            row = make.breaker(scope=pool)
            assert admin.post("/requests", kind="release", id=row.pk, reason="clear").status_code == 200
        found = {}
        for name, who in (("viewer", viewer), ("approver", approver)):
            who.get("/requests")
            with CaptureQueriesContext(connection) as seen:
                items = who.get("/requests").json()["items"]
            assert [item["why_not"] is None for item in items] == [name == "approver"] * len(items)
            found[name] = len(seen)
        return found

    one, three = asked("a"), asked("b", "c")
    assert three["viewer"] == one["viewer"]
    assert three["approver"] - one["approver"] == 2 * 2  # the breaker, and who edited the policies in force


def test_who_sees_another_pool_only_finds_nothing_of_it(asking):
    make.pool("infer")
    here = make.breaker(asking.pool.name)
    asked = repairs.ask_answer(asking.pk, actor=make.actor(make.person("operator", "olga")), choice="terminate_first",
                               reason="full")  # fmt: skip
    other = Session("admin", "otto", pool="infer")
    assert other.get("/requests").json()["items"] == other.get("/breakers").json()["items"] == []
    for answer in (
        other.get(f"/requests/{asked.pk}"), other.post(f"/requests/{asked.pk}/confirm"),
        other.post(f"/requests/{asked.pk}/refuse", reason="x"), _asked(other, asking),
        other.post("/requests", kind="release", id=here.pk, reason="x"),
        other.post(f"/repairs/{asking.pk}/answers", choice="replace", reason="x"),
        other.post(f"/repairs/{asking.pk}/stop"),
    ):  # fmt: skip
        assert answer.status_code == 404
    assert not AuditRow.objects.filter(actor="otto", verb__startswith="repair").exists()


def test_a_decision_is_taken_back(db):
    scene.acting()
    case = scene.asked()
    olga = Session("operator", "olga")
    told = {"plan_version": case.plan_version, "evidence_hash": case.evidence_hash}
    made = olga.post(f"/cases/{case.pk}/decisions", decision="approve", reason="", **told)
    assert made.status_code == 200, made.content
    assert olga.post(f"/cases/{case.pk}/undo").json()["state"] == "WAITING"
    assert Repair.objects.get().state == "CANCELLED"
    assert olga.post(f"/cases/{case.pk}/undo").status_code == 409

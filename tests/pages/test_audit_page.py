"""The audit page: its filters are its address, it shows a person's places only, and its export is sent while read."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import timedelta

import pytest

from healthboard import spans
from healthboard.audit import queries
from healthboard.audit.models import AuditRow
from healthboard.policies import versions
from healthboard.policies.models import Policy
from tests import factories as make


def _sent(answer) -> str:
    assert answer.status_code == 200
    assert answer.streaming, "a long record must not be held in memory"
    return answer.getvalue().decode()


def _csv(answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_sent(answer))))


def _told(verb: str, **fields) -> AuditRow:
    return make.audit(verb, verb, by=make.actor(make.person("viewer")), **fields)


def test_it_filters_by_pool_instances_and_group_cases_alike(home, log_in):
    other = make.instance(make.pool("infer"))
    group = make.case(None, pool=home, account=home.account, region=home.region)
    _told("case.opened", instance=make.instance(home))
    _told("case.correlated", case_id=group.pk)
    _told("case.dismiss", instance=other)
    rows = log_in("viewer").get("/audit/?pool=train").context["rows"]
    assert [row.verb for row in rows] == ["case.correlated", "case.opened"]


def test_it_filters_by_the_minute_and_keeps_the_filter_in_its_form(home, log_in):
    row = _told("case.opened")
    client = log_in("viewer")
    minute = f"{row.at:%Y-%m-%dT%H:%M}"
    later = f"{row.at + timedelta(minutes=1):%Y-%m-%dT%H:%M}"
    answer = client.get(f"/audit/?since={minute}&until={minute}&verb=case")
    assert list(answer.context["rows"]) == [row]
    assert f'name="since" value="{minute}"' in answer.content.decode()
    assert not client.get(f"/audit/?since={later}&verb=case").context["rows"]
    before = f"{row.at - timedelta(minutes=1):%Y-%m-%dT%H:%M}"
    assert not client.get(f"/audit/?until={before}&verb=case").context["rows"]


def test_a_group_case_of_elsewhere_is_not_told(home, log_in):
    elsewhere = make.pool("west", account=make.account("444455556666"))
    mine = make.case(None, pool=home, account=home.account, region=home.region)
    theirs = make.case(None, pool=elsewhere, account=elsewhere.account, region=elsewhere.region)
    for case in (mine, theirs):
        _told("case.correlated", case_id=case.pk)
    _told("switch.stopped")
    client = log_in("viewer", account=home.account)
    assert {(row.verb, row.case_id) for row in client.get("/audit/").context["rows"]} >= {
        ("case.correlated", mine.pk), ("switch.stopped", None)
    }  # fmt: skip
    assert theirs.pk not in {row.case_id for row in client.get("/audit/").context["rows"]}
    assert str(theirs.pk) not in {row["case"] for row in _csv(client.get("/audit/?format=csv"))}
    assert theirs.pk in {row.case_id for row in log_in("viewer").get("/audit/").context["rows"]}


def test_policies_of_elsewhere_are_not_told_either(home, log_in):
    """Their names and the reasons for a change say what goes on there; each page of theirs hides them."""
    make.pool("infer")
    by = make.actor(make.person("admin"))
    for name, match in (
        ("night", {"pool": "train"}),
        ("secret plan", {"pool": "infer"}),
        ("wide", {"workload": "llm"}),
    ):
        versions.save(Policy(name=name, settings={"undo_s": 60}, **match), actor=by, reason="why")
    client = log_in("viewer", account=home.account, pool="train")
    told = [row.summary for row in client.get("/audit/").context["rows"]]
    assert sorted(told) == ["night v1: why", "wide v1: why"]
    assert "secret plan" not in _sent(client.get("/audit/?format=csv"))
    asked = client.get("/api/v1/audit").json()["items"]
    assert sorted(row["summary"] for row in asked) == sorted(told)
    assert len(log_in("viewer").get("/audit/").context["rows"]) == 3


def test_a_breaker_or_pause_of_the_first_release_is_read_by_who_sees_everything(home, log_in):
    """Its rows have no place, and are never changed; they name pools, machines and what is wrong there."""
    for verb, summary in (
        ("breaker.opened", "three launches of infer failed"), ("breaker.released", "released: infer has room"),
        ("pause.set", "pool infer paused: it moves"), ("pause.ended", "pool infer pause ended"),
        ("pause.set", "fleet  paused: everything moves"),
    ):  # fmt: skip
        make.audit(verb, summary, by=make.actor(make.person("admin")))
    scoped = log_in("viewer", account=home.account, pool="train").get("/audit/").context["rows"]
    assert [row.summary for row in scoped] == ["fleet  paused: everything moves"]
    assert len(log_in("viewer").get("/audit/").context["rows"]) == 5


def test_pages_and_exports_give_the_same_rows_in_parts(home, log_in, monkeypatch):
    on = make.instance(home)
    made = [_told("case.note", instance=on).pk for _ in range(7)]
    monkeypatch.setattr("healthboard.pages.PAGE_SIZE", 3)
    monkeypatch.setattr(queries, "_PART", 2)
    client, shown, after = log_in("viewer"), [], ""
    while True:
        answer = client.get(f"/audit/?instance={on.instance_id}&after={after}")
        shown += [row.pk for row in answer.context["rows"]]
        if not (after := answer.context["next"]):
            break
    assert shown == made[::-1]
    where = f"/audit/?instance={on.instance_id}"
    assert [int(row["id"]) for row in _csv(client.get(where + "&format=csv"))] == shown
    assert [row["id"] for row in json.loads(_sent(client.get(where + "&format=json")))["items"]] == shown


def test_an_export_without_rows_has_its_header_and_a_formula_is_guarded(home, log_in):
    client = log_in("viewer")
    assert _sent(client.get("/audit/?who=nobody-at-all&format=csv")).strip() == ",".join(queries.COLUMNS)
    assert _sent(client.get("/audit/?who=nobody-at-all&format=json")) == '{"items": []}'
    _told("=cmd|'/C calc'!A0")
    assert ",'=cmd|" in _sent(client.get("/audit/?format=csv"))


#: a list in a list …, as the place to go on from
DEEP = f"after={base64.urlsafe_b64encode(b'[' * 2900).decode()}"


@pytest.mark.parametrize("said", ["case=²", "case=" + "9" * 5000, "repair=-1", "since=2026-13-45", "since=%00", "until=x", "after=!!", "after=WyJ4Il0", DEEP])  # fmt: skip
def test_what_is_no_number_and_no_time_is_left_out(home, log_in, said):
    _told("case.opened")
    assert log_in("viewer").get(f"/audit/?{said}").status_code == 200


def test_days_and_minutes_are_whole():
    day = spans.begin("2026-03-01")
    assert spans.end("2026-03-01") - day == timedelta(days=1)
    assert spans.end("2026-03-01T10:05") - spans.begin("2026-03-01T10:05") == timedelta(minutes=1)
    assert spans.minute("2026-03-01", last=True) == "2026-03-01T23:59"
    assert spans.minute("2026-03-01T10:05", last=True) == "2026-03-01T10:05"
    assert spans.begin("9999-12-31") is None is spans.begin("")

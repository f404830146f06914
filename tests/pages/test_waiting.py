"""Why nothing happens is always said: the same reasons on the instance, the case, the repair and in the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from healthboard import clock
from healthboard.people import tokens
from healthboard.repairs import budget, second, waiting
from tests import factories as make


def _kinds(*about) -> list[str]:
    return [row.kind for row in waiting.waiting_for(*about)]


def _everything(home):
    """An instance under a scheduled repair with all that can stand against it at once."""
    on = make.instance(home, owner="BATCH", is_self=True, paused_by_tag=True)
    make.task(on, make.workload("llm-train"))
    make.switch(stopped=True, acting=False, reason="fire", changed_by="ann")
    make.pause("workload", "llm-train", reason="roll-out")
    make.breaker("train")
    home.account.source_set.filter(name="ec2").update(succeeded_at=make.ago(900))
    case = make.case(on, state="DECIDED", plan={"blockers": ["not shown once decided"]})
    text = "Budget of train: 4 of 4 allowed are out (i-1, i-2)"
    repair = make.repair(on, state="SCHEDULED", not_before=clock.now() + timedelta(seconds=30), why_waiting=text)
    make.decision(case, kind="auto", repair=repair)
    return on, case, repair


def test_all_three_pages_and_the_api_say_the_same(home, log_in):
    on, case, repair = _everything(home)
    expected = ["owner", "owner", "switch", "acting", "pause", "tag", "breaker", "blind", "undo", "budget"]
    assert _kinds(on, case, repair) == expected
    client, user = log_in("viewer"), make.person("viewer")
    caller = Client(headers={"Authorization": f"Bearer {tokens.issue_api(user, actor=make.actor(user))}"})
    for page, api in (
        (f"/instances/{on.pk}/", f"/api/v1/instances/{on.pk}"),
        (f"/cases/{case.pk}/", f"/api/v1/cases/{case.pk}"),
        (f"/repairs/{repair.pk}/", f"/api/v1/repairs/{repair.pk}"),
    ):
        told = caller.get(api).json()["waiting_for"]
        assert [row["kind"] for row in told] == expected, api
        text = unescape(client.get(page).content.decode())
        for row in told:
            assert row["text"] in text, (page, row)


@pytest.mark.parametrize(
    "values",
    [{"budget_absolute": 0}, {"minimum_healthy": 2}, {"one_zone_at_a_time": True}, {"repairs_per_hour": 1}],
    ids=lambda values: next(iter(values)),
)
def test_each_limit_of_the_budget_is_known_as_one(home, values):
    """The words come from where the limit is kept; a limit that is told in new words fails here."""
    make.occupancy(make.repair(make.instance(home, zone="us-east-1a")))
    repair = make.repair(make.instance(home, zone="us-east-1b"), state="SCHEDULED", not_before=make.ago(5))
    make.instance(home)
    repair.why_waiting = budget.take(repair, values)
    assert repair.why_waiting
    (told,) = waiting.waiting_for(repair.instance, None, repair)
    assert told.kind == "budget"
    assert ("two people may" in told.then) == second.waits_for_budget(repair), "what is told can be asked for"


@pytest.mark.parametrize(
    "state, fields, kinds",
    [
        ("WAITING", {"why_waiting": "one witness only"}, ["person"]),
        ("WAITING", {"plan": {"blockers": ["train-asg is at its maximum of 4: raise it by one first"]}}, ["person", "room"]),
        ("OBSERVED", {"mode_why": "the policy Night observes"}, ["policy"]),
        ("HELD", {}, ["breaker"]),
        ("SNOOZED", {"snoozed_until": datetime(2099, 1, 1, tzinfo=UTC)}, ["snooze"]),
        ("WAITING", {"clear_since": datetime(2026, 1, 1, tzinfo=UTC)}, ["person", "evidence"]),
        ("CLOSED", {}, []),
    ],
)  # fmt: skip
def test_each_state_of_a_case_says_whom_or_what_it_waits_for(home, state, fields, kinds):
    case = make.case(make.instance(home), state=state, **fields)
    assert _kinds(case.instance, case) == (kinds or ["evidence"])
    if state == "CLOSED":
        assert _kinds(None, case) == []


@pytest.mark.parametrize(
    "fields, kind, said",
    [
        ({"state": "ASKING", "why_waiting": "two tasks have not left"}, "person", "Two tasks have not left."),
        ({"step": "room", "why_waiting": "no capacity"}, "room", "Prove room: no capacity."),
        ({"step": "standby", "why_waiting": "entering Standby"}, "step", "Standby: entering Standby."),
        ({"step": "launch", "why_waiting": "no capacity in 1a"}, "step", "Launch: no capacity in 1a."),
        ({"step": "tasks", "why_waiting": "1 task is left"}, "step", "Await tasks: 1 task is left."),
        (
            {"step": "drain", "why_waiting": "AWS does not answer: Throttling"},
            "aws",
            "AWS does not answer: Throttling.",
        ),
    ],
)
def test_a_repair_says_what_its_step_waits_for(home, fields, kind, said):
    repair = make.repair(make.instance(home), **fields)
    assert [(row.kind, row.text) for row in waiting.waiting_for(repair.instance, None, repair)] == [(kind, said)]


def test_what_was_asked_anew_is_not_over(home):
    case = make.case(make.instance(home), expired_at=make.ago(60), expires_at=make.ago(-60))
    [row] = waiting.waiting_for(case.instance, case)
    assert (row.kind, row.until, row.text) == ("person", case.expires_at, f"Case {case.pk} waits for a person.")


def test_a_blocker_is_said_once_and_names_stay_as_they_are_written(home):
    said = "train-asg is at its maximum of 4: raise it by one first"
    case = make.case(make.instance(home), why_waiting=said, plan={"blockers": [said]})
    texts = [row.text for row in waiting.waiting_for(case.instance, case)]
    assert texts == [f"Case {case.pk} waits for a person.", f"{said}."]


def test_a_held_repair_is_not_said_to_start_in_a_moment(home, client):
    client.force_login(make.person("operator"))
    held = make.repair(make.instance(home), state="SCHEDULED", why_waiting="Budget of train: 4 of 4 allowed are out")
    free = make.repair(make.instance(home), state="SCHEDULED", not_before=make.ago(-30))
    told = {one: client.get(f"/repairs/{one.pk}/").content.decode() for one in (held, free)}
    assert "starts in" not in told[held] and "starts in" in told[free]


def test_only_what_cannot_be_undone_asks_for_a_fresh_log_in(home, client):
    client.force_login(make.person("approver"))
    choices = [
        {"key": "again", "title": "Try again", "needs": "decide"},
        {"key": "force_tasks", "title": "Give up", "needs": "terminate_first"},
    ]
    asks = make.repair(make.instance(home), state="ASKING", why_waiting="2 tasks stay", facts={"choices": choices})
    page = client.get(f"/repairs/{asks.pk}/").content.decode()
    assert page.count("takes two people") == 1 and page.index("Give up") < page.index("takes two people")


def test_each_breach_says_what_to_do_next(client, db):
    from healthboard.cases import alarm

    client.force_login(make.person("operator"))
    alarm.keep(["ORPHAN: i-1 belongs to none", "INV2: too many", "AUDIT: a row was changed"])
    page = unescape(client.get("/system/").content.decode())
    assert all(word in page for word in (*alarm.NEXT.values(), alarm.OTHERWISE))


def test_a_group_case_waits_for_its_breaker(home):
    group = make.case(None, verdict="CORRELATED", action="HOLD", breaker=make.breaker(), pool=home)
    row = waiting.waiting_for(None, group)[0]
    assert (row.kind, row.until, row.link) == ("breaker", group.expires_at, "/system/#breakers")


def test_every_kind_says_what_has_to_happen_and_the_reasons_cost_few_queries(home):
    on, case, repair = _everything(home)
    with CaptureQueriesContext(connection) as seen:
        rows = waiting.waiting_for(on, case, repair)
    assert len(seen) <= 7, [q["sql"][:90] for q in seen]
    assert all(row.then for row in rows)

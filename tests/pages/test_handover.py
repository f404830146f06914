"""The hand-over of a shift: page, text and Markdown say the same, and say it for the places of the person."""

from __future__ import annotations

import re

import pytest

from tests import factories as make

HOSTILE = "<script>alert(1)</script>\n# [x](http://evil) \u202eback *b*"


@pytest.fixture
def shift(home):
    person = make.person("operator", "ann")
    waiting = make.case(make.instance(home), title="GPU 3 does not answer")
    gone = make.case(make.instance(home), state="CLOSED", resolution="REPAIRED")
    dismissed = make.case(make.instance(home), state="CLOSED", resolution="DISMISSED", title="Overheated once")
    make.decision(dismissed, person, "dismiss", reason="the fan was replaced")
    make.decision(dismissed, person, "approve", at=make.ago(20 * 3600))
    make.decision(gone, None, "auto")
    make.repair(make.instance(home), state="SUCCEEDED", outcome_why="the replacement serves", closed_at=make.ago(3000))
    make.repair(make.instance(home), state="SUCCEEDED", outcome_why="long ago", closed_at=make.ago(9 * 3600))
    make.repair(make.instance(home), state="FAILED", outcome_why="it came back", closed_at=make.ago(3000))
    make.repair(make.instance(home), state="ASKING", why_waiting="two tasks stay")
    make.case(make.instance(home), state="SNOOZED", snoozed_until=make.ago(-3600), title="Fabric trouble")
    make.pause(reason="Firmware roll-out")
    make.breaker(account=home.account)
    make.source("events", age=500, error="AccessDenied")
    return waiting


def sections(client, query: str = "") -> dict[str, str]:
    found = client.get(f"/handover/{query}").context["sections"]
    return {s.title: " | ".join(f"{r.text} {r.more} {r.until or ''}" for r in s.rows) for s in found}


def test_it_says_what_the_next_person_needs(shift, log_in):
    found = sections(log_in("viewer"))
    assert "GPU 3 does not answer: drain and reboot" in found["Waits for a person"]
    assert "asks: two tasks stay" in found["Waits for a person"]
    assert "it came back" in found["Failed verifications and repairs"]
    assert "pool infer, by operator Firmware roll-out; ends 20" in found["Paused"]
    assert re.search(r"Fabric trouble: drain and reboot snoozed, wakes 20\d\d", found["Paused"])
    assert "Many at once: pool train" in found["Breakers"]
    assert "events of 111122223333" in found["Blind sources and broken invariants"] and "AccessDenied" in str(found)
    assert "1 repaired and verified" in found["Done"] and "the replacement serves" in found["Done"]
    assert "ann: 1 dismissed" in found["Decisions"] and "the fan was replaced" in found["Decisions"]
    assert "policy: 1 decided by policy" in found["Decisions"]


def test_hours_choose_and_nonsense_is_eight(shift, log_in):
    client = log_in("viewer")
    assert "long ago" not in sections(client)["Done"]
    assert (
        "long ago" in sections(client, "?hours=10")["Done"]
        and "ann: 1 approved, 1 dismissed" in sections(client, "?hours=24")["Decisions"]
    )
    for raw, hours in (("x", 8), ("-1", 8), ("0", 1), ("99999999", 8), ("999", 168), ("²", 8), ("", 8)):
        assert client.get("/handover/", {"hours": raw}).context["hours"] == hours


@pytest.mark.parametrize("how", ["text", "markdown"])
def test_text_to_paste_says_the_same_with_end_times(shift, log_in, how, settings):
    settings.URL = "https://board.example.com"
    client = log_in("viewer", "otto")
    answer = client.get(f"/handover/?format={how}")
    text = answer.content.decode().replace("\\", "")
    assert (
        answer["Content-Type"] == "text/plain; charset=utf-8"
        and "of the last 8 hours until" in text
        and "by otto" in text
    )
    for section in client.get("/handover/").context["sections"]:
        assert all(row.text in text and row.more in text for row in section.rows)
    assert re.search(r"pool infer, by operator.* – Firmware roll-out; ends 20\d\d-\d\d-\d\d \d\d:\d\d UTC", text)
    assert ("[GPU 3 does not answer: drain and reboot](https://board.example.com/cases/" in text) == (how == "markdown")


def test_what_nodes_and_people_wrote_stays_text(home, log_in):
    make.case(make.instance(home), title=HOSTILE)
    make.pause(reason=HOSTILE)
    client = log_in("viewer")
    page = client.get("/handover/").content.decode()
    assert "<script>alert" not in page and "\u202e" not in page
    text = client.get("/handover/?format=markdown").content.decode()
    assert "\u202e" not in text and "\n# \\[x" not in text
    assert "\\<script\\>alert(1)\\</script\\> \\# \\[x\\](http://evil)" in text


def test_it_shows_the_places_of_the_person(home, log_in):
    make.case(make.instance(make.pool("infer")), title="elsewhere")
    make.repair(make.instance(make.pool("infer")), why_waiting="elsewhere")
    client = log_in("viewer", pool="train")
    assert "elsewhere" not in client.get("/handover/").content.decode()


def test_an_empty_shift_says_so(home, log_in):
    text = log_in("viewer").get("/handover/").content.decode()
    for words in ("Nothing waits.", "No repair is under way.", "Nothing is paused.", "Nobody decided anything."):
        assert words in text


def test_a_thrown_switch_and_a_tag_stand_first_among_what_is_paused(home, log_in):
    make.switch(stopped=True, changed_by="ann", reason="fire")
    make.instance(home, paused_by_tag=True)
    found = sections(log_in("viewer"))["Paused"]
    assert found.startswith("Everything: the stop switch was thrown by ann fire") and "1 instance by a tag" in found


def test_many_rows_are_cut_and_counted(home, log_in, monkeypatch):
    monkeypatch.setattr("healthboard.approve.handover.MOST", 2)
    for _ in range(5):
        make.case(make.instance(home))
    client = log_in("viewer")
    assert "and 3 more" in client.get("/handover/").content.decode()
    assert "- and 3 more" in client.get("/handover/?format=text").content.decode()


def test_what_was_not_even_read_is_counted(home, log_in, monkeypatch):
    monkeypatch.setattr("healthboard.approve.handover.MOST", 2)
    person, on = make.person("operator"), make.instance(home)
    for state in ("ASKING", "RUNNING", "FAILED", "SUCCEEDED"):
        for _ in range(11):
            make.repair(make.instance(home), state=state)
    for _ in range(3):
        make.case(make.instance(home), state="SNOOZED", snoozed_until=make.ago(-60), tries=1)
        make.breaker(account=home.account, released_at=make.ago(5), released_by="ada")
        case = make.case(on, state="CLOSED", resolution="DISMISSED")
        make.decision(case, person, "dismiss")
    found = {s.title: len(s.rows) + s.more for s in log_in("viewer").get("/handover/").context["sections"]}
    assert (found["Waits for a person"], found["Under way"], found["Paused"], found["Breakers"]) == (11, 11, 3, 3)
    assert found["Failed verifications and repairs"] == 11 + 3
    assert (found["Done"], found["Decisions"]) == (1 + 11, 1 + 3)


def test_what_a_tag_pauses_in_other_pools_is_not_counted(home, log_in):
    make.instance(home, paused_by_tag=True)
    make.instance(make.pool("infer"), paused_by_tag=True)
    client = log_in("viewer", pool="train")
    assert "1 instance is paused by a tag" in client.get("/system/").content.decode()
    rows = [row for s in client.get("/handover/").context["sections"] for row in s.rows if "by a tag" in row.text]
    assert [(row.text, row.link) for row in rows] == [("1 instance by a tag, without an end", "")]

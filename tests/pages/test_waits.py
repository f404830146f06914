"""What waits for a person beside cases: a repair that asks, and what wants a second person. Each is counted, listed and
handed over, to those who may see its place."""

from __future__ import annotations

import re

import pytest

from healthboard.repairs import second
from tests import factories as make

QUESTION = "Two tasks have not left for 30 minutes"
CHOICES = [{"key": "undo", "title": "Undo", "needs": ""}, {"key": "terminate_first", "title": "End it now", "needs": "terminate_first"}]  # fmt: skip


@pytest.fixture
def asking(home):
    """A repair that asks; its case is decided, as the engine leaves it."""
    case = make.case(make.instance(home), state="DECIDED")
    repair = make.repair(case.instance, state="ASKING", why_waiting=QUESTION, facts={"choices": CHOICES})
    make.decision(case, None, "auto", repair=repair)
    return repair


@pytest.fixture
def request_made(asking):
    who = make.actor(make.person("operator", "olga"), recent=True)
    return second.ask_answer(asking.pk, actor=who, choice="terminate_first", reason="both tasks may go")


def _inbox(client) -> str:
    return client.get("/").content.decode()


def _badge(text: str) -> int:
    found = re.search(r'>Inbox <span class="count"[^>]*>(\d+)<', text)
    return int(found[1]) if found else 0


def _rows(text: str) -> list[str]:
    return re.findall(r'data-row="([^"]+)"', text)


def test_a_repair_that_asks_waits_for_a_person(asking, log_in):
    text = _inbox(log_in("operator"))
    assert "1 repair waits for you" in text and "Nothing waits for a person" not in text
    assert _badge(text) == 1 and re.search(r'tab=waiting"[^>]*>Waiting <span class="count">1<', text)
    assert _rows(text) == [f"repair-{asking.pk}"]
    for shown in (QUESTION, asking.instance.instance_id, f'href="/repairs/{asking.pk}/"', "No case waits."):
        assert shown in text, shown


def test_the_tab_counts_its_rows(asking, request_made, home, log_in):
    cases = [make.case(make.instance(home)) for _ in range(2)]
    text = _inbox(log_in("approver"))
    assert _rows(text)[:2] == [f"repair-{asking.pk}", f"request-{request_made.pk}"]
    assert {*_rows(text)[2:]} == {str(case.pk) for case in cases}
    assert _badge(text) == 4 and "2 cases, 1 repair and 1 request wait for you" in text
    assert "more are not shown" not in text


def test_who_may_not_answer_is_told_why_and_counts_none_as_theirs(asking, log_in):
    text = _inbox(log_in("viewer", "vera"))
    assert "<h1>Nothing waits for you</h1>" in text and 'class="theirs"' in text
    assert "To decide a case takes the role" in text and _badge(text) == 1


def test_a_request_says_who_what_until_when_and_where(request_made, asking, log_in):
    text = _inbox(log_in("approver"))
    assert "1 request waits for a second person" in text
    for shown in (request_made.what, "both tasks may go", "olga", f'href="/repairs/{asking.pk}/#second"', ">60 min<"):
        assert shown in text, shown
    assert "You asked for it: another person must confirm it." not in text


def test_whoever_asked_does_not_wait_for_themselves(request_made, log_in, client):
    client.force_login(request_made.asked_by_user)
    text = _inbox(client)
    assert "You asked for it: another person must confirm it." in text
    assert "1 repair waits for you" in text, "and not the request"


def test_a_breakers_release_is_confirmed_on_system(home, log_in):
    breaker = make.breaker(account=home.account)
    admin = make.actor(make.person("admin"), recent=True)
    asked = second.ask_release(breaker.pk, actor=admin, reason="the driver was rolled back")
    client = log_in("approver")
    assert f'<a class="open" href="/system/#breakers">{asked.what}</a>' in _inbox(client)
    assert "1 request waits for a second person" in client.get("/wall/").content.decode()


@pytest.mark.parametrize("address", ["/", "/wall/", "/handover/"])
def test_other_peoples_places_are_not_told_of(request_made, log_in, address):
    mine, others = log_in("approver", pool="train"), log_in("approver", pool="infer")
    shown, hidden = (client.get(address).content.decode() for client in (mine, others))
    assert QUESTION in shown and QUESTION not in hidden
    assert request_made.what not in hidden and _badge(hidden) == 0 and "Nothing waits" in hidden


def test_what_names_other_pools_machines_counts_them(asking, log_in):
    other = make.instance(make.pool("infer"))
    asking.why_waiting = f"It waits behind {other.instance_id}"
    asking.save()
    client = log_in("operator", pool="train")
    for address in ("/", "/wall/"):
        text = client.get(address).content.decode()
        assert other.instance_id not in text and "It waits behind an instance outside your scope" in text


@pytest.mark.parametrize("change", ["another question", "answered", "asked for", "taken back"])
def test_a_poll_brings_what_changed(asking, log_in, change):
    who = make.actor(make.person("operator"), recent=True)
    if change == "taken back":
        asked = second.ask_answer(asking.pk, actor=who, choice="terminate_first", reason="go")
    client = log_in("operator")
    shown = re.search(r'"X-Shown": "(\w+)"', _inbox(client))[1]
    poll = {"HX-Request": "true", "X-Shown": shown}
    assert client.get("/", headers=poll).status_code == 204
    match change:
        case "another question":
            asking.why_waiting = "Three tasks"
            asking.save()
        case "answered":
            asking.state = "RUNNING"
            asking.save()
        case "asked for":
            second.ask_answer(asking.pk, actor=who, choice="terminate_first", reason="go")
        case "taken back":
            asked.state = "WITHDRAWN"
            asked.save()
    assert client.get("/", headers=poll).status_code == 200


def test_the_hand_over_names_what_was_asked_for(request_made, log_in):
    client = log_in("viewer")
    section = client.get("/handover/").context["sections"][0]
    row = section.rows[0]
    assert row.text == f"A second person: {request_made.what}" and row.until == request_made.expires_at
    assert "asked for by olga at " in row.more and "both tasks may go; expires" in row.more
    assert row.link == f"/repairs/{request_made.subject.partition(':')[2]}/#second"
    assert row.text in client.get("/handover/?format=text").content.decode()


def test_the_wall_shows_the_question(asking, log_in):
    text = log_in("viewer").get("/wall/").content.decode()
    assert QUESTION in text and "Nothing waits for a person" not in text
    assert "<dt>wait for a person</dt><dd>1</dd>" in text and "<title>1 waiting" in text

"""A log-in on the way of something that was pressed: nothing of it is done, people are told so, and find what they wrote."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.test import Client

from healthboard import clock
from healthboard.people import detour
from healthboard.people.models import Request
from healthboard.people.web import AUTH_AT
from healthboard.repairs.models import Repair, Switch
from tests import factories as make

pytestmark = pytest.mark.django_db
HERE = "http://testserver"


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr("healthboard.wake._quiet_until", float("inf"))


@pytest.fixture
def repair():
    make.switch()
    choices = [
        {"key": "undo", "title": "Undo", "needs": ""},
        {"key": "terminate_first", "title": "End it now", "needs": "terminate_first"},
    ]
    return make.repair(make.instance(make.pool("train")), state="ASKING", facts={"choices": choices})


def _in(client: Client, name: str) -> Client:
    assert client.post("/accounts/login/", {"username": name, "password": make.PASSWORD}).status_code == 302
    return client


def _text(answer) -> str:
    return html.unescape(answer.content.decode())


def _stale(client: Client, seconds: int = 1000) -> None:
    session = client.session
    session[AUTH_AT] = make.ago(seconds).isoformat()
    session.save()


def _again(client: Client, where: str):
    return client.post("/accounts/again/", {"password": make.PASSWORD, "next": where})


# --- no log-in any more


@pytest.mark.parametrize("address", ["/system/stop/", "/repairs/{repair}/stop/", "/repairs/{repair}/answer/", "/bulk/confirm/"])  # fmt: skip
def test_a_press_after_the_session_ended_leads_back_to_the_page_and_says_that_nothing_was_done(repair, address):
    client, where = Client(), f"/repairs/{repair.pk}/"
    make.person("operator", "otto")
    answer = client.post(address.format(repair=repair.pk), {"reason": "x"}, headers={"Referer": f"{HERE}{where}?a=1"})
    assert answer.status_code == 302 and answer.url == f"/accounts/login/?next={where}%3Fa%3D1"
    assert detour.NOTHING_DONE in _text(client.get(answer.url))
    client.post(answer.url, {"username": "otto", "password": "wrong"})
    done = client.post(answer.url, {"username": "otto", "password": make.PASSWORD})
    assert done.url == f"{where}?a=1"
    page = client.get(done.url)
    assert page.status_code == 200 and detour.NOTHING_DONE in _text(page), "said once more after the log-in"
    assert detour.NOTHING_DONE not in _text(client.get(where)), "and no more"
    assert not Switch.objects.get().stopped and not Repair.objects.get().stop_asked_by


@pytest.mark.parametrize("told", ["https://evil.example/system/", "", "javascript:alert(1)", f"{HERE}//evil.example/", "http://testserver:99/x/"])  # fmt: skip
def test_another_sites_address_leads_to_the_inbox(told):
    answer = Client().post("/system/stop/", {"reason": "x"}, headers={"Referer": told} if told else {})
    assert answer.url == "/accounts/login/?next=/"


def test_a_page_that_is_only_read_is_opened_after_the_log_in_without_such_a_word(repair):
    client, where = Client(), f"/repairs/{repair.pk}/"
    answer = client.get(where, headers={"Referer": f"{HERE}/"})
    assert answer.url == f"/accounts/login/?next={where}" and "Nothing was done" not in _text(client.get(answer.url))


def test_ending_a_session_without_one_is_not_done_either():
    client = Client()
    answer = client.post("/accounts/sessions/", headers={"Referer": f"{HERE}/accounts/sessions/"})
    assert answer.url == "/accounts/login/?next=/accounts/sessions/"
    assert detour.NOTHING_DONE in _text(client.get(answer.url))


def test_an_address_that_only_takes_a_press_says_so_to_whom_opens_it(repair):
    client = Client()
    client.force_login(make.person("operator"))
    answer = client.get(f"/repairs/{repair.pk}/answer/")
    assert answer.status_code == 405 and answer["Allow"] == "POST"
    assert "only takes what a button sends" in _text(answer) and f'href="/repairs/{repair.pk}/"' in _text(answer)


# --- the token of another log-in


def test_a_form_of_an_earlier_log_in_says_that_nothing_was_done_and_leads_back(repair):
    make.person("operator", "otto")
    client = Client(enforce_csrf_checks=True)
    token = _token(client, "/accounts/login/")
    form = {"username": "otto", "password": make.PASSWORD, "csrfmiddlewaretoken": token}
    assert client.post("/accounts/login/", form).status_code == 302  # in another tab: the token is a new one
    where = f"/repairs/{repair.pk}/"
    answer = client.post("/system/stop/", {"csrfmiddlewaretoken": token, "reason": "x"}, headers={"Referer": HERE + where})  # fmt: skip
    text = _text(answer)
    assert answer.status_code == 403 and "Nothing was done: go back and press it again." in text
    assert f'href="{where}"' in text and 'href="/system/#switch"' in text
    assert "default-src 'none'" in answer["Content-Security-Policy"] and "unsafe-inline" not in answer["Content-Security-Policy"]  # fmt: skip
    assert not re.search(r"<script>|style=", text) and not Switch.objects.get().stopped
    form = {"csrfmiddlewaretoken": _token(client, where), "reason": "x"}
    assert client.post("/system/stop/", form).status_code == 303 and Switch.objects.get().stopped


def test_a_strangers_form_without_a_token_leads_to_the_log_in():
    answer = Client(enforce_csrf_checks=True).post("/system/stop/", headers={"Referer": "https://evil.example/"})
    text = _text(answer)
    assert answer.status_code == 403 and detour.NOTHING_DONE in text and 'href="/accounts/login/?next=%2F"' in text
    assert "evil" not in text


def _token(client: Client, where: str) -> str:
    return re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get(where).content.decode())[1]


# --- a log-in that is too old


def test_an_answer_that_wanted_a_fresh_log_in_is_filled_in_again_once(repair):
    make.person("operator", "otto")
    client, where = _in(Client(), "otto"), f"/repairs/{repair.pk}/"
    _stale(client)
    wanted = {"choice": "terminate_first", "reason": "both <tasks> may go"}
    answer = client.post(f"{where}answer/", wanted)
    assert answer.status_code == 303 and not Request.objects.exists()
    assert detour.ANEW not in _text(client.get(answer.url))
    assert _again(client, where).url == where
    text = client.get(where).content.decode()
    assert html.escape(detour.ANEW) in text and "both &lt;tasks&gt; may go</textarea>" in text
    assert re.search(r'value="terminate_first" required checked', text) and not re.search(r'value="undo" required checked', text)  # fmt: skip
    text = client.get(where).content.decode()
    assert "may go" not in text and "checked" not in text and "logged in anew" not in text
    assert client.post(f"{where}answer/", wanted).status_code == 303 and Request.objects.exists()


@pytest.mark.parametrize("form", ["resume", "acting", "release_breaker", "release"])
def test_each_reason_that_wanted_a_fresh_log_in_is_filled_in_again(form):
    make.switch(stopped=form == "resume")
    home = make.pool("train")
    first, breaker = make.breaker("other", account=home.account), make.breaker(account=home.account)
    group = make.case(None, verdict="CORRELATED", breaker=make.breaker("z", scope_kind="zone"), pool=home)
    address, where = {
        "release_breaker": (f"/system/breakers/{breaker.pk}/release/", "/system/"),
        "release": (f"/cases/{group.pk}/release/", f"/cases/{group.pk}/release/"),
    }.get(form, (f"/system/{form}/", "/system/"))
    make.person("admin", "ada")
    client = _in(Client(), "ada")
    _stale(client)
    answer = client.post(address, {"reason": "the driver was rolled back", "on": "0"})
    assert (answer.status_code, answer.url.partition("?")[0]) == (303, "/accounts/again/")
    _again(client, where)
    text = client.get(where).content.decode()
    assert text.count("the driver was rolled back") == 1 and html.escape(detour.ANEW) in text
    if form == "release_breaker":
        assert re.search(rf'id="why-{breaker.pk}"[^>]*value="the driver', text), f"not at {first.pk}"


def test_what_was_written_is_kept_for_ten_minutes_and_for_its_own_page(repair):
    make.person("operator", "otto")
    client, where = _in(Client(), "otto"), f"/repairs/{repair.pk}/"
    _stale(client)
    client.post(f"{where}answer/", {"choice": "terminate_first", "reason": "may go"})
    assert "may go" not in client.get("/system/").content.decode()
    with clock.virtual(clock.now() + timedelta(seconds=detour.KEPT_S + 1)):
        _again(client, where)
        text = client.get(where).content.decode()
    assert "may go" not in text and html.escape(detour.ANEW) not in text


def test_passwords_and_other_fields_are_never_kept(repair):
    make.person("operator", "otto")
    client = _in(Client(), "otto")
    _stale(client)
    sent = {"choice": "terminate_first", "reason": "r" * 5000, "password": "secret"}
    client.post(f"/repairs/{repair.pk}/answer/", sent)
    kept = client.session["detour"]
    assert set(kept) == {"at", "to", "form", "pk", "reason", "choice"} and len(kept["reason"]) == detour.LONGEST


def test_whoever_logs_in_anew_by_themselves_is_told_nothing():
    make.person("operator", "otto")
    client = _in(Client(), "otto")
    client.get("/accounts/again/?next=/system/")
    _again(client, "/system/")
    assert "Nothing was done yet" not in _text(client.get("/system/"))


# --- refused


def test_a_refused_pause_keeps_its_length_and_reason():
    make.switch()
    make.pool("train")
    client = Client()
    client.force_login(make.person("admin"))
    sent = {"kind": "pool", "scope": "trian", "length": str(7 * 86400), "reason": "firmware <roll-out>"}
    answer = client.post("/system/pauses/", sent)
    text = answer.content.decode()
    assert answer.status_code == 422 and "There is no pool trian" in text
    assert re.search(r'<option value="604800" selected>7 days</option>', text) and 'value="trian"' in text
    assert re.search(r'id="pause-why"[^>]*value="firmware &lt;roll-out&gt;"', text) and text.count("roll-out") == 1


def test_a_refused_answer_keeps_choice_and_reason(repair):
    client = Client()
    client.force_login(make.person("operator"))
    answer = client.post(f"/repairs/{repair.pk}/answer/", {"choice": "undo", "reason": ""})
    text = answer.content.decode()
    assert answer.status_code == 422 and re.search(r'value="undo" required checked', text)
    text = client.post(f"/repairs/{repair.pk}/answer/", {"reason": "because <i>"}).content.decode()
    assert "because &lt;i&gt;</textarea>" in text and "checked" not in text
